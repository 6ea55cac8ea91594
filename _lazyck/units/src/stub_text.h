// Makes the text from which nvcc's device front end writes a source's stubs and registrations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "source_text.h"

namespace lazyck::units {

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
