"""List nvcc's options, as of CUDA 11 to 13: `--long` and `-short`, with values after ` ` or `=`."""

from collections.abc import Iterable

from lazyck import abi
from lazyck.abi import Role
from lazyck.toolchains.gnu import PROFILING
from lazyck.toolchains.options import E, OptionTable, P, S

# Long and short names of the options that take a value. A long one alone is short with one dash.
_VALUES = (
    "--pre-include -include;--library -l;--define-macro -D;--undefine-macro -U;--include-path -I;"
    "--system-include -isystem;--library-path -L;--output-directory -odir;--compiler-bindir -ccbin;"
    "--archiver-binary -arbin;--cudart;--cudadevrt;--libdevice-directory -ldir;--target-directory -target-dir;"
    "--optimization-info -opt-info;--optimize -O;--Ofast-compile -Ofc;--dopt;--ftemplate-backtrace-limit;"
    "--ftemplate-depth;--x;--std;--machine -m;--compiler-options -Xcompiler;--linker-options -Xlinker;"
    "--archive-options -Xarchive;--ptxas-options -Xptxas;--nvlink-options -Xnvlink;--fatbin-options -Xfatbin;"
    "--nvvm-options -Xcicc;--static-global-template-stub;--device-entity-has-hidden-visibility;--threads -t;"
    "--split-compile;--split-compile-extended;--fdevice-time-trace;--keep-dir;--time;--run-args;"
    "--input-drive-prefix -idp;--dependency-drive-prefix -ddp;--drive-prefix -dp;--gpu-architecture -arch;"
    "--gpu-code -code;--generate-code -gencode;--relocatable-device-code -rdc;--entries -e;--maxrregcount;--ftz;"
    "--prec-div;--prec-sqrt;--fmad;--default-stream;--Werror;--qpp-config;--diag-error;--diag-suppress;--diag-warn;"
    "--host-linker-script -hls;--brief-diagnostics -brief-diag;--jump-table-density -jtd;--device-stack-protector;"
    "--compress-mode;--frandom-seed;--sanitize;--options-file -optf;--output-file -o;--dependency-output -MF;"
    "--dependency-target-name -MT;--maxregcount;--compiler-library -cclib;--machine-options -march;--tile-preview;"
    "--tileiras-options -Xtileiras;--stdlib;--apply-controls;--nvprune-options -Xnvprune;--fmax-errors;"
    "--fdevice-time-trace-granularity;--fdevice-sanitize"
)
_ROLES = {
    "-o": Role.OUTPUT,
    "-x": Role.LANGUAGE,
    "-MF": Role.DEPEND_FILE,
    "-MT": Role.DEPEND_TARGET,
    "-optf": Role.RESPONSE,
    "-l": Role.LIBRARY,
    "-L": Role.LIBRARY_DIR,
    "-Xlinker": Role.LINKER,
    "-rdc": Role.REFUSE_IF_TRUE,
    "-I": Role.INCLUDE,
    "-isystem": Role.INCLUDE_SYSTEM,
    "-include": Role.INCLUDE_FILE,
    "-ccbin": Role.HOST_COMPILER,
    "-Xcompiler": Role.HOST_OPTIONS,
}
_ONE_CHARACTER = ("-I", "-L", "-l", "-D", "-U", "-O")


def pairs() -> Iterable[tuple[str, str]]:
    """Yield the long and the short name of every option that takes a value."""
    for pair in _VALUES.split(";"):
        long, _, short = pair.partition(" ")
        yield long, short or long[1:]


_RDC = abi.WHY_RELOCATABLE_DEVICE_CODE
_ROWS = (
    (E, Role.REFUSE, "--preprocess -E", abi.WHY_PREPROCESS),
    (E, Role.REFUSE, "--ptx -ptx --cuda -cuda --cubin -cubin --fatbin -fatbin", abi.WHY_OTHER_OUTPUT),
    (E, Role.REFUSE, "--optix-ir -optix-ir --ltoir -ltoir", abi.WHY_OTHER_OUTPUT),
    (E, Role.REFUSE, "--generate-dependencies -M --generate-nonsystem-dependencies -MM", abi.WHY_DEPENDENCIES),
    (E, Role.REFUSE, "--dryrun -dryrun", abi.WHY_DRY_RUN),
    (E, Role.REFUSE, "--help -h --version -V --list-gpu-code -code-ls --list-gpu-arch -arch-ls", abi.WHY_QUERY),
    (E, Role.REFUSE, "--device-link -dlink", abi.WHY_DEVICE_LINK),
    (E, Role.REFUSE, "--lib -lib", abi.WHY_ARCHIVE),
    (E, Role.REFUSE, "--relocatable-link -r", abi.WHY_RELOCATABLE_LINK),
    (E, Role.REFUSE, "--run -run --clean-targets -clean", abi.WHY_UNSUPPORTED_OPTION),
    (E, Role.REFUSE_COMPILE, "--device-c -dc --device-w -dw --extensible-whole-program -ewp", _RDC),
    (E, Role.REFUSE_COMPILE, "--relocatable-ptx -reloc-ptx", _RDC),
    (E, Role.REFUSE_COMPILE, "--lto -lto --dlink-time-opt -dlto --gen-opt-lto -gen-opt-lto", _RDC),
    (E, Role.REFUSE_COMPILE, "--fdevice-syntax-only -fdevice-syntax-only", abi.WHY_SYNTAX_ONLY),
    (E, Role.COMPILE, "--compile -c", ""),
    (E, Role.DEPEND, "--generate-dependencies-with-compile -MD", ""),
    (E, Role.DEPEND_USER, "--generate-nonsystem-dependencies-with-compile -MMD", ""),
    (E, Role.DEPEND_PHONY, "--generate-dependency-targets -MP", ""),
    # These begin like an option of one character with its value joined to it.
    (E, Role.FLAG, "-lineinfo -link -Ofast -Dryrun", ""),
    *(
        (mode, _ROLES.get(short, Role.FLAG), text + end, _RDC if short == "-rdc" else "")
        for long, short in pairs()
        for text in (long, short)
        for mode, end in ((S, ""), (P, "="))
    ),
    *((P, _ROLES.get(text, Role.FLAG), text, "") for text in _ONE_CHARACTER),
    # The bare spelling is used where unknown options are forwarded. The shim puts words for the
    # host compiler behind -Xcompiler.
    *(
        (mode, Role.REFUSE_COMPILE, f"{before}{text}{end}", abi.WHY_PROFILING)
        for text in PROFILING.split()
        for before in ("", "-Xcompiler,")
        for mode, end in ((E, ""), (P, "="))
    ),
)
TABLE = OptionTable(_ROWS)
