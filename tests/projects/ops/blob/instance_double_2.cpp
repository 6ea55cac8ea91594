#include "ops_impl.hpp"

template double run_instance<double, 2>(const double*, int);
template std::string name_of<double, 2>();
