// As units.h has it, of sources of HIP that clang compiles.
#pragma once

#include <string>

#include "units.h"

namespace lazyck::units {

void make_hip_host_unit(const Job& job, const std::string& id, TableIn place);
// The object that the command makes, of the same contents: host code is compiled while device code is, and gets that
// afterwards.
void make_hip_object(const Job& job);
// Asks for it (see asking.h), and makes nothing.
void ask_for_hip_object(const Job& job);
void make_hip_kernel_unit(const Job& job, const Kernel& kernel);

}  // namespace lazyck::units
