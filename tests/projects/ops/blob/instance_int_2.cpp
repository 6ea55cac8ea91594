#include "ops_impl.hpp"

template int run_instance<int, 2>(const int*, int);
template std::string name_of<int, 2>();
