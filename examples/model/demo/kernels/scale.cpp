#include "../kernels.hpp"
void scale(double factor, std::vector<double>& values) {
    for (double& value : values) value *= factor;
}
