// Makes the text from which nvcc's device front end compiles one kernel of a source.
#pragma once

#include <string>

#include "units.h"

namespace lazyck::units {

// How much of a device pass's text is kept:
// - `own`: everything except the bodies of kernels with other names
// - `named`: also without the bodies of host functions and the source's own instantiations; an
//   added line asks for the kernel by its name
// - `used`: of the source and its headers, only what that line leads to, followed by name
// If something is missing, the compiler reports an error; it does not make other code. The reason
// is that all declarations of a name are kept, or none.
enum class KernelText { used, named, own };

// Whether a kernel has a name by which a text can ask for it. A lambda among its template arguments
// has none.
bool can_be_asked_for(const Kernel& kernel);

std::string text_for_kernel(const Kernel& kernel, const std::string& text, const std::string& source,
                            KernelText how_much);

}  // namespace lazyck::units
