// What nvcc's front end for the device is given to have it compile one kernel of a source.
#pragma once

#include <string>

#include "units.h"

namespace lazyck::units {

// How much of a device pass's text is left. `own`: all but the bodies of kernels of other names. `named`: nor the
// bodies of host functions, and instances that the source has made; a line asks for the kernel by its name. `used`:
// only what that line leads to, by names, of all that headers hold. What is lacking is an error of the compiler's, not
// other code: of a name, all declarations are there or none.
enum class KernelText { used, named, own };

// Whether a kernel has a name by which text may ask for it: a lambda among its template arguments has none.
bool can_be_asked_for(const Kernel& kernel);

std::string text_for_kernel(const Kernel& kernel, const std::string& text, const std::string& source,
                            KernelText how_much);

}  // namespace lazyck::units
