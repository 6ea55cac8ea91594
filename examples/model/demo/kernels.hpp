#include <vector>
void scale(double factor, std::vector<double>& values);
double sum(const std::vector<double>& values);
