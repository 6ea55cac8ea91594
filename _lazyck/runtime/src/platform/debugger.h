// Tells a debugger that the names of loaded objects have changed.
#pragma once

namespace lazyck::rt {

// Makes a debugger read the names of loaded objects again. Debuggers read an object's name while it
// is loaded, and again only when something is unloaded. Does nothing if no debugger is attached.
// The loader runs, so no lock may be held.
void refresh_debugger();

// Returns whether a debugger is attached to this process. The answer may be a second old.
bool is_traced();

}  // namespace lazyck::rt
