# lazyck for CMake projects: find_package(lazyck), with -Dlazyck_DIR="$(lazyck --cmake-dir)".
# See docs/cmake.md.
#
#   lazyck_library(<target> BLOBS <source>...
#                  [ARCHS <arch>...] [TOOLCHAIN auto|host|cuda|rocm|llvm]
#                  [INSTALL_DIR <dir> [COMPONENT <component>]])
#       compiles these sources of <target> at their first call. It puts lazyck's launcher before the
#       compiles and the link of this one target, and otherwise does what `lazyck build full` does.
#   LAZYCK_ENABLE=OFF
#       compiles them with the rest, ahead of time.
#   lazyck::headers
#       provides lazyck.h, the C interface of lazy libraries.

if(CMAKE_VERSION VERSION_LESS 3.18)
  set(lazyck_FOUND FALSE)
  set(lazyck_NOT_FOUND_MESSAGE "lazyck needs CMake 3.18 or newer, this is ${CMAKE_VERSION}")
  return()
endif()
cmake_policy(PUSH)
cmake_policy(VERSION 3.18...3.31)

option(LAZYCK_ENABLE "Compile the blobs of lazyck_library at their first call; OFF: ahead of time" ON)

if(NOT TARGET lazyck::headers)
  add_library(lazyck::headers INTERFACE IMPORTED)
  set_target_properties(
    lazyck::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}/include")
endif()

get_filename_component(lazyck__root "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
set_property(GLOBAL PROPERTY _LAZYCK_ROOT "${lazyck__root}")
set_property(GLOBAL PROPERTY _LAZYCK_VERSION "${lazyck_VERSION}")
unset(lazyck__root)

function(lazyck_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TOOLCHAIN;INSTALL_DIR;COMPONENT" "BLOBS;ARCHS")
  lazyck__check_call("${target}")
  lazyck__absolute(blobs "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_BINARY_DIR}" ${arg_BLOBS})
  list(REMOVE_DUPLICATES blobs)
  lazyck__sources_of(sources "${target}")
  set(missing ${blobs})
  list(REMOVE_ITEM missing "" ${sources})
  if(missing)
    target_sources("${target}" PRIVATE ${missing})
  endif()
  set(others ${sources})
  list(REMOVE_ITEM others ${blobs})

  lazyck__is_wrapped(wrapped)
  if(wrapped)
    message(STATUS "lazyck: `lazyck build full` runs this build: its --blobs decide what of ${target} is lazy")
    return()
  endif()
  set(directory "${CMAKE_BINARY_DIR}/.lazyck-build/${target}")
  if(NOT LAZYCK_ENABLE)
    lazyck__mark("${target}" "${directory}" real ${blobs} ${others})
    return()
  endif()
  lazyck__prepare("${target}" "${directory}" "${blobs}")
  lazyck__launch("${target}" "${directory}/bin/lazyck-launch")
  lazyck__mark("${target}" "${directory}" real ${others})
  lazyck__mark("${target}" "${directory}" lazy ${blobs})
  # In a unity build a blob would not be compiled by itself.
  set_property(SOURCE ${blobs} TARGET_DIRECTORY "${target}" PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
  # The library is linked again when the settings or lazyck change.
  set_property(TARGET "${target}" APPEND PROPERTY LINK_DEPENDS "${directory}/options.json" "${directory}/stamp")
  if(arg_INSTALL_DIR)
    lazyck__warn_of_precompiled_headers("${target}" "${blobs}")
    lazyck__install("${target}" "${arg_INSTALL_DIR}" "${arg_COMPONENT}")
  endif()
endfunction()

# -- the call --------------------------------------------------------------------------------------

macro(lazyck__fail text)
  message(FATAL_ERROR "lazyck_library(${target}): ${text}")
endmacro()

# Ends with an error unless the call makes sense. It is a macro, so that it sees the arguments of
# lazyck_library.
macro(lazyck__check_call target)
  if(DEFINED arg_UNPARSED_ARGUMENTS)
    lazyck__fail("unknown arguments: ${arg_UNPARSED_ARGUMENTS}. It takes BLOBS, ARCHS, TOOLCHAIN, INSTALL_DIR, COMPONENT")
  endif()
  if(DEFINED arg_KEYWORDS_MISSING_VALUES AND NOT arg_KEYWORDS_MISSING_VALUES STREQUAL "BLOBS")
    lazyck__fail("no value after ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  if(NOT arg_BLOBS)
    lazyck__fail("no BLOBS: name the sources to compile at their first call")
  endif()
  if(NOT TARGET "${target}")
    lazyck__fail("no such target: call it after add_library or add_executable")
  endif()
  get_target_property(lazyck__type "${target}" TYPE)
  get_target_property(lazyck__imported "${target}" IMPORTED)
  get_target_property(lazyck__alias "${target}" ALIASED_TARGET)
  if(lazyck__imported OR lazyck__alias)
    lazyck__fail("an imported or alias target: call it for the target that is built here")
  endif()
  if(NOT lazyck__type MATCHES "^(SHARED_LIBRARY|MODULE_LIBRARY|EXECUTABLE)$")
    lazyck__fail("a target of type ${lazyck__type}, which is not linked itself: call it for the shared library, module \
or executable that takes these sources")
  endif()
  get_property(lazyck__before TARGET "${target}" PROPERTY _LAZYCK_HAS_BLOBS)
  if(lazyck__before)
    lazyck__fail("called twice: give all BLOBS in one call")
  endif()
  set_property(TARGET "${target}" PROPERTY _LAZYCK_HAS_BLOBS ON)
  if(DEFINED arg_COMPONENT AND NOT DEFINED arg_INSTALL_DIR)
    lazyck__fail("COMPONENT without INSTALL_DIR: nothing would be installed")
  endif()
  if(DEFINED arg_TOOLCHAIN AND NOT arg_TOOLCHAIN MATCHES "^(auto|host|cuda|rocm|llvm)$")
    lazyck__fail("TOOLCHAIN ${arg_TOOLCHAIN}: give one of auto, host, cuda, rocm, llvm")
  endif()
  if(LAZYCK_ENABLE AND NOT CMAKE_GENERATOR MATCHES "Ninja|Makefiles")
    lazyck__fail("the generator ${CMAKE_GENERATOR} has no launchers: use Ninja or Makefiles, or -DLAZYCK_ENABLE=OFF")
  endif()
  if(LAZYCK_ENABLE AND CMAKE_BINARY_DIR MATCHES "[]\"$`\\;#%[]")
    lazyck__fail("the build directory ${CMAKE_BINARY_DIR} has a character that launchers cannot be given: one of \
\" $ ` \\ ; # % [ ]. Build elsewhere, or with -DLAZYCK_ENABLE=OFF")
  endif()
endmacro()

# Sets `out` to the sources as absolute paths. They are looked up as CMake does: in the source
# directory, else in the binary one.
function(lazyck__absolute out source_dir binary_dir)
  set(found "")
  foreach(source IN LISTS ARGN)
    if(source MATCHES "[$]<|\n")
      lazyck__fail("${source}: BLOBS are files, not generator expressions")
    endif()
    if(NOT IS_ABSOLUTE "${source}")
      if(EXISTS "${source_dir}/${source}")
        set(source "${source_dir}/${source}")
      else()
        set(source "${binary_dir}/${source}")
      endif()
    endif()
    get_filename_component(source "${source}" ABSOLUTE)
    list(APPEND found "${source}")
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Sets `out` to the sources of a target as absolute paths, without those that a generator expression
# names.
function(lazyck__sources_of out target)
  get_target_property(sources "${target}" SOURCES)
  if(NOT sources)
    set(sources "")
  endif()
  list(FILTER sources EXCLUDE REGEX "[$]<")
  get_target_property(source_dir "${target}" SOURCE_DIR)
  get_target_property(binary_dir "${target}" BINARY_DIR)
  lazyck__absolute(sources "${source_dir}" "${binary_dir}" ${sources})
  set(${out} "${sources}" PARENT_SCOPE)
endfunction()

# Sets `out` to whether this build itself runs under `lazyck build full`.
function(lazyck__is_wrapped out)
  set(${out} FALSE PARENT_SCOPE)
  foreach(language IN ITEMS C CXX CUDA HIP)
    get_filename_component(place "${CMAKE_${language}_COMPILER}" DIRECTORY)
    get_filename_component(name "${CMAKE_${language}_COMPILER}" NAME)
    if((name AND EXISTS "${place}/.lazyck/${name}.conf") OR "${CMAKE_${language}_COMPILER_LAUNCHER}" MATCHES
                                                            "/lazyck-launch(;|$)")
      set(${out} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# -- what lazyck does ------------------------------------------------------------------------------

# Finds the Python that has lazyck: the project's, the one beside which this package is installed,
# or the one in PATH.
function(lazyck__find_python)
  get_property(root GLOBAL PROPERTY _LAZYCK_ROOT)
  get_property(version GLOBAL PROPERTY _LAZYCK_VERSION)
  find_program(lazyck__path_python NAMES python3 python NO_CACHE)
  set(tried "")
  foreach(python IN ITEMS "${LAZYCK_PYTHON}" "${Python_EXECUTABLE}" "${Python3_EXECUTABLE}"
                          "${root}/../../../bin/python3" "${lazyck__path_python}")
    if(NOT python OR NOT EXISTS "${python}" OR python IN_LIST tried)
      continue()
    endif()
    execute_process(
      COMMAND "${python}" -c "import sys; sys.path.insert(0, sys.argv[1]); import lazyck.cli; print(lazyck.__version__)"
              "${root}"
      OUTPUT_VARIABLE said ERROR_VARIABLE said OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(said STREQUAL version)
      set(LAZYCK_PYTHON "${python}" CACHE FILEPATH "The Python that runs lazyck" FORCE)
      return()
    endif()
    string(REGEX REPLACE "^.*\n" "" said "${said}")
    if(python STREQUAL LAZYCK_PYTHON)
      message(WARNING "lazyck: LAZYCK_PYTHON=${python} does not run the lazyck of ${root} (${said}); looking for another")
    endif()
    list(APPEND tried "${python}")
    string(APPEND reasons "\n  ${python}: ${said}")
  endforeach()
  message(FATAL_ERROR "lazyck: no Python here runs the lazyck of ${root}:${reasons}\n"
                      "  hint: name the one that has lazyck installed: -DLAZYCK_PYTHON=/path/to/python3")
endfunction()

# Makes lazyck prepare what compiles and links of the target need.
function(lazyck__prepare target directory blobs)
  lazyck__find_python()
  get_property(root GLOBAL PROPERTY _LAZYCK_ROOT)
  string(REPLACE ";" "\n" lines "${blobs}")
  file(WRITE "${directory}/blobs.txt" "${lines}\n")
  set(words --tmp-dir "${directory}" --programs-dir "${CMAKE_BINARY_DIR}/.lazyck-build" --project-dir
            "${PROJECT_SOURCE_DIR}" --sources-from "${directory}/blobs.txt")
  if(arg_TOOLCHAIN)
    list(APPEND words --toolchain "${arg_TOOLCHAIN}")
  endif()
  if(arg_ARCHS)
    string(REPLACE ";" "," archs "${arg_ARCHS}")
    list(APPEND words --gpu-archs "${archs}")
  endif()
  foreach(pair IN ITEMS CC=C CXX=CXX CUDACXX=CUDA HIPCXX=HIP)
    string(REGEX MATCH "^(.*)=(.*)$" pair "${pair}")
    if(CMAKE_${CMAKE_MATCH_2}_COMPILER)
      list(APPEND words --compiler "${CMAKE_MATCH_1}=${CMAKE_${CMAKE_MATCH_2}_COMPILER}")
    endif()
  endforeach()
  execute_process(
    COMMAND "${LAZYCK_PYTHON}" -c
            "import sys; sys.path.insert(0, sys.argv.pop(1)); from lazyck.cli import main; main()" "${root}"
            cmake-target ${words}
    RESULT_VARIABLE status ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    lazyck__fail("${said}")
  endif()
endfunction()

# Makes compiles and links of the target run through lazyck. The project's own launchers stay. A
# compiler's launcher, such as a compiler cache, comes after lazyck, so that it sees real compiles
# by the real compiler. A linker's launcher comes before lazyck.
function(lazyck__launch target launcher)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  foreach(language IN ITEMS C CXX CUDA HIP)
    if(language IN_LIST languages)
      get_property(own TARGET "${target}" PROPERTY ${language}_COMPILER_LAUNCHER)
      set_property(TARGET "${target}" PROPERTY ${language}_COMPILER_LAUNCHER "${launcher}" --links ${own})
    endif()
  endforeach()
  foreach(language IN ITEMS C CXX)
    get_property(own TARGET "${target}" PROPERTY ${language}_LINKER_LAUNCHER)
    set_property(TARGET "${target}" PROPERTY ${language}_LINKER_LAUNCHER ${own} "${launcher}")
  endforeach()
  lazyck__rule_launcher(compile "${target}" RULE_LAUNCH_COMPILE)
  if(compile MATCHES "cc?ache")
    lazyck__fail("RULE_LAUNCH_COMPILE (${compile}) would cache what is not compiled: name the compiler cache by \
CMAKE_CXX_COMPILER_LAUNCHER instead")
  endif()
  # CMake has no linker launcher for links by CUDA and HIP, and before 3.21 none at all.
  if("CUDA" IN_LIST languages OR "HIP" IN_LIST languages OR CMAKE_VERSION VERSION_LESS 3.21)
    lazyck__rule_launcher(link "${target}" RULE_LAUNCH_LINK)
    string(STRIP "${link} \"${launcher}\"" link)
    set_property(TARGET "${target}" PROPERTY RULE_LAUNCH_LINK "${link}")
  endif()
endfunction()

function(lazyck__rule_launcher out target property)
  get_property(value TARGET "${target}" PROPERTY ${property})
  if(NOT value)
    get_property(value DIRECTORY PROPERTY ${property})
  endif()
  if(NOT value)
    get_property(value GLOBAL PROPERTY ${property})
  endif()
  set(${out} "${value}" PARENT_SCOPE)
endfunction()

# Makes the object of a source depend on a file that says whether the source is a blob. Build tools
# notice that a source changed, but not that it became a blob or ceased to be one. A source that
# never was a blob has no such file.
function(lazyck__mark target directory state)
  foreach(source IN LISTS ARGN)
    string(SHA1 name "${source}")
    set(mark "${directory}/marks/${name}")
    set(before "")
    if(EXISTS "${mark}")
      file(READ "${mark}" before)
    elseif(state STREQUAL "real")
      continue()
    endif()
    if(NOT before STREQUAL state)
      file(WRITE "${mark}" "${state}")
    endif()
    set_property(SOURCE "${source}" TARGET_DIRECTORY "${target}" APPEND PROPERTY OBJECT_DEPENDS "${mark}")
  endforeach()
endfunction()

# Warns of precompiled headers: CMake's include the project's headers by absolute paths, which do
# not lead into a bundle.
function(lazyck__warn_of_precompiled_headers target blobs)
  get_target_property(headers "${target}" PRECOMPILE_HEADERS)
  list(GET blobs 0 first)
  get_source_file_property(skipped "${first}" TARGET_DIRECTORY "${target}" SKIP_PRECOMPILE_HEADERS)
  if(headers AND NOT skipped)
    message(WARNING "lazyck_library(${target}): blobs with precompiled headers cannot be compiled from an install once \
the sources are gone. Set the property SKIP_PRECOMPILE_HEADERS for the BLOBS before this call.")
  endif()
endfunction()

# Installs lazyck/<library>, which is beside the library in the build, beside the place where the
# project installs the library.
function(lazyck__install target where component)
  if(NOT IS_ABSOLUTE "${where}")
    set(where "\${CMAKE_INSTALL_PREFIX}/${where}")
  endif()
  set(options "")
  if(component)
    set(options COMPONENT "${component}")
  endif()
  install(CODE "
    set(lazyck_file \"$<TARGET_FILE:${target}>\")
    get_filename_component(lazyck_name \"\${lazyck_file}\" NAME)
    get_filename_component(lazyck_place \"\${lazyck_file}\" DIRECTORY)
    string(FIND \"\${lazyck_name}\" \".so\" lazyck_at)
    if(lazyck_at GREATER 0)
      string(SUBSTRING \"\${lazyck_name}\" 0 \${lazyck_at} lazyck_name)
    endif()
    set(lazyck_where \"${where}/lazyck\")
    file(REMOVE_RECURSE \"\$ENV{DESTDIR}\${lazyck_where}/\${lazyck_name}\")
    if(IS_DIRECTORY \"\${lazyck_place}/lazyck/\${lazyck_name}\")
      file(INSTALL \"\${lazyck_place}/lazyck/\${lazyck_name}\" DESTINATION \"\${lazyck_where}\")
    endif()" ${options})
endfunction()

cmake_policy(POP)
