// What nvcc's front end for the device is given to have it write a source's stubs and registrations.
#pragma once

#include <string>

namespace lazyck::units {

// How much of a device pass's text is left, the bodies of kernels aside: what is registered stands in their heads.
//
// What the front end does with large headers costs more than all the rest. So `lean` leaves out what device functions
// do, and host functions that seem to lead to no kernel and no device variable; `used` also all that the source's own
// declarations do not lead to. Both go by names, and may miss what is registered by a way that no name shows.
enum class StubText { used, lean, all };

std::string text_for_stubs(const std::string& text, const std::string& source, StubText how_much);

}  // namespace lazyck::units
