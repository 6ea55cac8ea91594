// Makes the texts from which nvcc's device front end compiles one kernel of a source, or writes the
// source's stubs and registrations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "source_text.h"
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

// How much of a device pass's text is kept. The bodies of kernels are always left out: what is
// registered follows from their heads.
// - `all`: everything else
// - `lean`: also without the bodies of device functions, and of host functions that seem to lead to
//   no kernel and no device variable
// - `used`: also without everything that the source's own declarations do not lead to
// Large headers take most of the front end's time. Both reductions go by names, and may miss what
// is registered in a way that no name shows.
enum class StubText { used, lean, all };

// The preprocessed text of a source, for a device pass.
class StubSource {
 public:
    // Both arguments have to outlive this.
    StubSource(std::string_view text, std::string_view source);

    std::string text_for(StubText how_much) const;

    // Names of templates of device variables. Those of their instances that are used are
    // registered.
    const std::vector<std::string_view>& instantiated() const { return m_instantiated; }

 private:
    std::string_view m_text;
    Definitions m_found;
    std::vector<std::string_view> m_instantiated;
};

}  // namespace lazyck::units
