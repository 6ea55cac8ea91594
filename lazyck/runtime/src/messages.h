// Lines for the user, on stderr, each in one write so that those of several processes do not mix.
#pragma once

#include <string>

namespace lazyck::rt {

// Writes "lazyck: <line>", in a distributed job "lazyck: [rank 3] <line>": one line, whatever names are in it.
void say(const std::string& line);

// Silences `say` (for `lazyck-rt --quiet`, whose caller reports).
void silence();

}  // namespace lazyck::rt
