"""List nvcc's options, as of CUDA 11 to 13: `--long` and `-short`, with values after ` ` or `=`. A
compile with an option that has no row is not deferred (see gnu_options.py)."""

from collections.abc import Iterable, Iterator

from lazyck import abi
from lazyck.abi import ROLES_OF_HEADERS, Role
from lazyck.toolchains.gnu_options import ROWS as GNU_ROWS
from lazyck.toolchains.gnu_options import E, F, N, P, Row, S
from lazyck.toolchains.options import OptionTable

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
    **dict.fromkeys(("-Xcompiler", "-Xptxas", "-Xfatbin", "-Xcicc"), Role.WORDS),
    **dict.fromkeys(("-keep-dir", "-time", "-fdevice-time-trace", "-ldir", "-qpp-config"), Role.REFUSE_COMPILE),
    **dict.fromkeys(("-apply-controls", "-run-args", "-hls", "-Xtileiras", "-Xnvprune"), Role.UNKNOWN),
}
_ONE_CHARACTER = ("-I", "-L", "-l", "-D", "-U", "-O")


def pairs() -> Iterable[tuple[str, str]]:
    """Yield the long and the short name of every option that takes a value."""
    for pair in _VALUES.split(";"):
        long, _, short = pair.partition(" ")
        yield long, short or long[1:]


_RDC = abi.WHY_RELOCATABLE_DEVICE_CODE
_REASONS = {
    "-rdc": _RDC,
    **dict.fromkeys(("-keep-dir", "-time", "-fdevice-time-trace"), abi.WHY_OTHER_OUTPUT),
    **dict.fromkeys(("-ldir", "-qpp-config"), abi.WHY_UNSUPPORTED_OPTION),  # they load code or configuration
    # Words for the host compiler are judged like those that nvcc forwards to it.
    **{"-Xptxas": "ptxas:", "-Xfatbin": "fatbin:", "-Xcicc": "cicc:"},
}
# Options without a value of which nothing but code and messages follows.
_PLAIN = (
    "--objdir-as-tempdir -objtemp --allow-unsupported-compiler -allow-unsupported-compiler --use-local-env "
    "-use-local-env --force-cl-env-setup -force-cl-env-setup --profile -pg --debug -g --device-debug -G "
    "--generate-line-info -lineinfo --no-exceptions -noeh --shared -shared --no-host-device-initializer-list "
    "-nohdinitlist --no-host-device-move-forward -nohdmoveforward --expt-relaxed-constexpr -expt-relaxed-constexpr "
    "--extended-lambda -extended-lambda --expt-extended-lambda -expt-extended-lambda --m64 -m64 "
    "--forward-unknown-to-host-compiler -forward-unknown-to-host-compiler --forward-unknown-to-host-linker "
    "-forward-unknown-to-host-linker --forward-unknown-opts -forward-unknown-opts --dont-use-profile -noprof --verbose "
    "-v --no-align-double --no-device-link -nodlink --use_fast_math -use_fast_math --extra-device-vectorization "
    "-extra-device-vectorization --disable-warnings -w --keep-device-functions -keep-device-functions --source-in-ptx "
    "-src-in-ptx --restrict -restrict --resource-usage -res-usage --no-compress -no-compress --display-error-number "
    "-err-no --no-display-error-number -no-err-no --jobserver -jobserver --link -link -Ofast"
)
# Of the host compiler's options: all but those that say what is compiled, and to which file.
_HOST_ROWS = tuple(
    row for row in GNU_ROWS if row[1] in (Role.FLAG, Role.REFUSE_COMPILE, Role.UNKNOWN, Role.WORDS, *ROLES_OF_HEADERS)
)
_ROWS: tuple[Row, ...] = (
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
    (E, Role.REFUSE_COMPILE, "--keep -keep --save-temps -save-temps", abi.WHY_OTHER_OUTPUT),
    (E, Role.REFUSE_COMPILE, "--compile-as-tools-patch -astoolspatch", abi.WHY_UNSUPPORTED_OPTION),
    (E, Role.FLAG, _PLAIN, ""),
    (F, Role.FLAG, "-W --W", ""),
    (P, Role.FLAG, "-t", ""),
    (S, Role.WORDS, "-Xcudafe", "cudafe:"),
    (P, Role.WORDS, "-Xcudafe=", "cudafe:"),
    (F, Role.FLAG, "cudafe:--diag cudafe:--display cudafe:--promote ptxas:-dlcm= ptxas:-dscm=", ""),
    (F, Role.FLAG, "ptxas:--def-load-cache= ptxas:--def-store-cache= fatbin:--compress-mode=", ""),
    (N, Role.FLAG, "cudafe:-- cicc:-", ""),
    *(
        (mode, _ROLES.get(short, Role.FLAG), text + end, _REASONS.get(short, ""))
        for long, short in pairs()
        for text in (long, short)
        for mode, end in ((S, ""), (P, "="))
    ),
    *((P, _ROLES.get(text, Role.FLAG), text, "") for text in _ONE_CHARACTER),
)


def _forwarded() -> Iterator[Row]:
    """Yield the rows of words that nvcc hands to its host compiler if it does not know them."""
    taken = {(mode in (E, S), text) for mode, _, texts, _ in _ROWS for text in texts.split()}
    for mode, role, texts, reason in _HOST_ROWS:
        yield mode, role, " ".join(t for t in texts.split() if (mode in (E, S), t) not in taken), reason


TABLE = OptionTable((*_ROWS, *_forwarded()))
