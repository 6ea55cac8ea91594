#include "ops_impl.hpp"

template float run_instance<float, 2>(const float*, int);
template std::string name_of<float, 2>();
