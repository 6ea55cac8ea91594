#include "library/activity.h"

#include <dlfcn.h>

#include <mutex>

#include "library/stubs.h"

namespace lazyck::rt {

Activity::Activity(States& states) : m_states(states) {
    const std::lock_guard<std::mutex> guard(states.m_mutex);
    ++states.m_in_flight;
    m_generation = states.m_generation;
}

Activity::~Activity() {
    const std::lock_guard<std::mutex> guard(m_states.m_mutex);
    if (m_generation != m_states.m_generation) return;
    if (--m_states.m_in_flight == 0) m_states.m_changed->notify_all();
}

void stay_loaded() {
    Dl_info info;
    if (dladdr(static_cast<const void*>(lazyck_manifest), &info) == 0 || info.dli_fname == nullptr) return;
    dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace lazyck::rt
