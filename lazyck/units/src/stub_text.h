// What nvcc's front end for the device is given to have it write a source's stubs and registrations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "source_text.h"

namespace lazyck::units {

// How much of a device pass's text is left, the bodies of kernels aside: what is registered stands in their heads.
//
// What the front end does with large headers costs more than all the rest. So `lean` leaves out what device functions
// do, and host functions that seem to lead to no kernel and no device variable; `used` also all that the source's own
// declarations do not lead to. Both go by names, and may miss what is registered by a way that no name shows.
enum class StubText { used, lean, all };

// A device pass's preprocessed text of a source.
class StubSource {
 public:
    // Both have to outlive this.
    StubSource(std::string_view text, std::string_view source);

    std::string text_for(StubText how_much) const;

    // Names of the device's variables of which instances are registered: of those that somebody uses.
    const std::vector<std::string_view>& instantiated() const { return m_instantiated; }

 private:
    std::string_view m_text;
    Definitions m_found;
    std::vector<std::string_view> m_instantiated;
};

}  // namespace lazyck::units
