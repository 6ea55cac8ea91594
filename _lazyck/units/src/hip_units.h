// Makes the units of units.h for HIP sources that clang compiles.
#pragma once

#include <string>

#include "units.h"

namespace lazyck::units {

void make_hip_host_unit(const Job& job, const std::string& id, TableIn place);
// Makes the object that the command makes, with equal contents. Host code and device code are
// compiled at the same time, and the device code is put into the host's object afterwards.
void make_hip_object(const Job& job);
// Asks whether that object exists already (see asking.h), and makes nothing.
void ask_for_hip_object(const Job& job);
void make_hip_kernel_unit(const Job& job, const Kernel& kernel);

}  // namespace lazyck::units
