set(CXX_STD 20 CACHE STRING "C++ standard")
