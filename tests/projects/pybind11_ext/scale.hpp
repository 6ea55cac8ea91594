#pragma once

// One explicit specialization per file in blob/.
template <int Dim>
double scale(double x);
