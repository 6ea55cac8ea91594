# Tells CMake whether this lazyck satisfies the version asked for. While lazyck is 0.x, it must be
# of the same minor version, if one is given, and not older.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../../lazyck/__init__.py" PACKAGE_VERSION REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = \"(.*)\"$" "\\1" PACKAGE_VERSION "${PACKAGE_VERSION}")

string(REGEX MATCH "^[0-9]+\\.[0-9]+" lazyck__minor "${PACKAGE_VERSION}")
set(PACKAGE_VERSION_COMPATIBLE FALSE)
if(PACKAGE_FIND_VERSION_RANGE)
  if(PACKAGE_FIND_VERSION_RANGE_MAX STREQUAL "INCLUDE")
    set(lazyck__above VERSION_LESS_EQUAL)
  else()
    set(lazyck__above VERSION_LESS)
  endif()
  if(PACKAGE_VERSION VERSION_GREATER_EQUAL PACKAGE_FIND_VERSION_MIN
     AND PACKAGE_VERSION ${lazyck__above} PACKAGE_FIND_VERSION_MAX)
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
  endif()
elseif(PACKAGE_VERSION VERSION_GREATER_EQUAL PACKAGE_FIND_VERSION
       AND (PACKAGE_FIND_VERSION_COUNT LESS 2
            OR "${PACKAGE_FIND_VERSION_MAJOR}.${PACKAGE_FIND_VERSION_MINOR}" VERSION_EQUAL lazyck__minor))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
unset(lazyck__minor)
unset(lazyck__above)
