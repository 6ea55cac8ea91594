// Tells a debugger that the names of loaded objects have changed.
#pragma once

namespace lazyck::rt {

// Debuggers read an object's name while it is being loaded, and again only when something is unloaded. Does nothing
// where no debugger is attached. Runs the loader: no lock may be held.
void refresh_debugger();

// Whether one is attached to this process.
bool is_traced();

}  // namespace lazyck::rt
