#include "ops_impl.hpp"

template int run_instance<int, 3>(const int*, int);
template std::string name_of<int, 3>();
