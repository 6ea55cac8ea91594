"""Takes the bundle along when CMake installs a lazy library: `cmake --install`, `ninja install`,
CPack.

All of these run the build tree's `cmake_install.cmake`. A line at its end includes a script of the
library's own, which looks at what was installed. CMake may rewrite that file whenever it
configures, so each build makes sure of that line.
"""

from pathlib import Path

from _lazyck.files import encode, write_if_different
from _lazyck.postbuild.bundle import deploy
from _lazyck.postbuild.objects.embedded import read_manifest
from _lazyck.postbuild.state import LinkState

_SCRIPT = """\
# Made by lazyck: takes the bundle of {library} to where {file} has been installed.
set(lazyck_library [==[{library}]==])
foreach(lazyck_file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
  get_filename_component(lazyck_name "${{lazyck_file}}" NAME)
  if(NOT lazyck_name STREQUAL [==[{file}]==] OR IS_SYMLINK "$ENV{{DESTDIR}}${{lazyck_file}}")
    continue()
  endif()
  # one that was built since, without lazyck or in another tmp dir, has not this digest of a manifest
  file(STRINGS "$ENV{{DESTDIR}}${{lazyck_file}}" lazyck_found LIMIT_COUNT 1 REGEX "{digest}")
  if(lazyck_found)
    get_filename_component(lazyck_place "${{lazyck_file}}" DIRECTORY)
    file(REMOVE_RECURSE "$ENV{{DESTDIR}}${{lazyck_place}}/lazyck/${{lazyck_library}}")
    file(INSTALL [==[{bundle}]==] DESTINATION "${{lazyck_place}}/lazyck")
  endif()
endforeach()
"""


def build_tree(output: Path) -> Path | None:
    """Return the CMake build tree that `output` is in, or None."""
    files = ("CMakeCache.txt", "cmake_install.cmake")
    return next((d for d in output.parents if all((d / file).is_file() for file in files)), None)


def carry_bundle(state: LinkState, directory: Path, output: Path) -> None:
    """Have the install step of the CMake build tree around `output`, if any, take the bundle along.
    Nothing is done if the user said by --root where the bundle will be, or if the project's own
    CMake code installs it."""
    tree = build_tree(output)
    bundle = directory / "bundle" / state.library
    if tree is None or state.keeps_root or state.beside or not state.runtime:
        return
    deployed = directory / "deployed" / state.library
    if not deployed.is_dir():
        deploy(bundle, deployed)
    digest = read_manifest(bundle / "manifest").digest
    text = _SCRIPT.format(library=state.library, file=state.file_name, digest=digest, bundle=deployed)
    script = directory / "install.cmake"
    write_if_different(script, encode(text))
    line = encode(f"include([==[{script}]==] OPTIONAL) # lazyck: the bundle of {state.library}\n")
    installs = tree / "cmake_install.cmake"
    if line not in installs.read_bytes():
        with installs.open("ab") as f:
            f.write(line)
