// Decides whether a call may compile what no cache has (LAZYCK_JIT, lazyck_forbid_jit), and keeps
// whether this library's warm-up is over (lazyck_ready).
#pragma once

#include "machine/machine.h"
#include "platform/config.h"

namespace lazyck::rt {

// Declares that warm-up is over, or that it is not, and returns the previous state.
bool set_ready(bool is_ready);
bool is_ready();

// Returns whether some lazy library of this process has been declared ready. This calls the dynamic
// loader, so call it while no lock is held.
bool is_process_ready();

class JitPolicy {
 public:
    explicit JitPolicy(const Config& config) : m_jit(config.jit), m_is_forbidden(config.jit == Jit::off) {}

    // Returns what forbids compiles, in words for an error, or an empty string if they are
    // permitted.
    const char* forbidden_by() const;
    bool is_forbidden() const { return forbidden_by()[0] != '\0'; }
    // Returns whether to warn of a call that has to compile.
    bool is_watching() const { return m_jit == Jit::warn && is_ready(); }
    // Forbids compiles, or permits them again, and returns the previous setting.
    bool forbid(bool is_forbidden) { return m_is_forbidden.exchange(is_forbidden); }

 private:
    const Jit m_jit;
    machine::Flag m_is_forbidden;
};

}  // namespace lazyck::rt
