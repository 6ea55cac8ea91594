#include "stream.h"

#include <chrono>
#include <mutex>
#include <set>

#include "state.h"

struct ihipStream_t {
    unsigned int m_flags;
    int m_priority;
};

struct ihipEvent_t {
    unsigned int m_flags;
    bool m_recorded;
    std::chrono::steady_clock::time_point m_time;
};

namespace fake_rocm {
namespace {

// Creates handles and knows which of them are alive.
template <class T>
class HandleTable {
 public:
    T* create(const T& value) {
        const std::lock_guard<std::mutex> lock(m_mutex);
        return *m_alive.insert(new T(value)).first;
    }
    bool destroy(T* handle) {
        const std::lock_guard<std::mutex> lock(m_mutex);
        if (m_alive.erase(handle) == 0) return false;
        delete handle;
        return true;
    }
    bool holds(T* handle) {
        const std::lock_guard<std::mutex> lock(m_mutex);
        return m_alive.count(handle) != 0;
    }

 private:
    std::mutex m_mutex;
    std::set<T*> m_alive;
};

HandleTable<ihipStream_t>& streams() { return immortal<HandleTable<ihipStream_t>>(); }
HandleTable<ihipEvent_t>& events() { return immortal<HandleTable<ihipEvent_t>>(); }

bool is_default_stream(hipStream_t stream) {
    return stream == nullptr || stream == hipStreamPerThread || stream == reinterpret_cast<hipStream_t>(1);
}

hipError_t create_stream(hipStream_t* stream, unsigned int flags, int priority) {
    if (stream == nullptr || (flags != hipStreamDefault && flags != hipStreamNonBlocking)) return hipErrorInvalidValue;
    if (devices().empty()) return hipErrorNoDevice;
    *stream = streams().create({flags, priority});
    return hipSuccess;
}

}  // namespace

bool is_stream(hipStream_t stream) { return is_default_stream(stream) || streams().holds(stream); }
bool is_event(hipEvent_t event) { return event != nullptr && events().holds(event); }
void record_event(hipEvent_t event) {
    event->m_recorded = true;
    event->m_time = std::chrono::steady_clock::now();
}

}  // namespace fake_rocm

using namespace fake_rocm;

extern "C" {

hipError_t hipStreamCreate(hipStream_t* stream) { return report(create_stream(stream, hipStreamDefault, 0)); }
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags) {
    return report(create_stream(stream, flags, 0));
}
hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int flags, int priority) {
    return report(create_stream(stream, flags, priority));
}
hipError_t hipStreamDestroy(hipStream_t stream) {
    return report(!is_default_stream(stream) && streams().destroy(stream) ? hipSuccess : hipErrorInvalidHandle);
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
    return report(is_stream(stream) ? hipSuccess : hipErrorInvalidHandle);
}
hipError_t hipStreamQuery(hipStream_t stream) { return report(is_stream(stream) ? hipSuccess : hipErrorInvalidHandle); }
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int) {
    return report(is_stream(stream) && is_event(event) ? hipSuccess : hipErrorInvalidHandle);
}
hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int* flags) {
    if (flags == nullptr) return report(hipErrorInvalidValue);
    if (!is_stream(stream)) return report(hipErrorInvalidHandle);
    *flags = is_default_stream(stream) ? static_cast<unsigned int>(hipStreamDefault) : stream->m_flags;
    return hipSuccess;
}
hipError_t hipStreamGetPriority(hipStream_t stream, int* priority) {
    if (priority == nullptr) return report(hipErrorInvalidValue);
    if (!is_stream(stream)) return report(hipErrorInvalidHandle);
    *priority = is_default_stream(stream) ? 0 : stream->m_priority;
    return hipSuccess;
}
hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void* data, unsigned int flags) {
    if (callback == nullptr || flags != 0) return report(hipErrorInvalidValue);
    if (!is_stream(stream)) return report(hipErrorInvalidHandle);
    callback(stream, hipSuccess, data);
    return hipSuccess;
}
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* data) {
    if (function == nullptr) return report(hipErrorInvalidValue);
    if (!is_stream(stream)) return report(hipErrorInvalidHandle);
    function(data);
    return hipSuccess;
}

hipError_t hipStreamBeginCapture(hipStream_t, hipStreamCaptureMode) { return report(hipErrorNotSupported); }
hipError_t hipStreamEndCapture(hipStream_t, hipGraph_t*) { return report(hipErrorNotSupported); }
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
    if (status == nullptr) return report(hipErrorInvalidValue);
    if (!is_stream(stream)) return report(hipErrorInvalidHandle);
    *status = hipStreamCaptureStatusNone;
    return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned int flags) {
    if (event == nullptr) return report(hipErrorInvalidValue);
    if (devices().empty()) return report(hipErrorNoDevice);
    *event = events().create({flags, false, {}});
    return hipSuccess;
}
hipError_t hipEventCreate(hipEvent_t* event) { return hipEventCreateWithFlags(event, hipEventDefault); }
hipError_t hipEventDestroy(hipEvent_t event) {
    return report(events().destroy(event) ? hipSuccess : hipErrorInvalidHandle);
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    if (!is_event(event) || !is_stream(stream)) return report(hipErrorInvalidHandle);
    record_event(event);
    return hipSuccess;
}
hipError_t hipEventSynchronize(hipEvent_t event) {
    return report(is_event(event) ? hipSuccess : hipErrorInvalidHandle);
}
hipError_t hipEventQuery(hipEvent_t event) { return report(is_event(event) ? hipSuccess : hipErrorInvalidHandle); }
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
    if (milliseconds == nullptr) return report(hipErrorInvalidValue);
    for (const hipEvent_t event : {start, stop})
        if (!is_event(event) || !event->m_recorded || (event->m_flags & hipEventDisableTiming) != 0)
            return report(hipErrorInvalidHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(stop->m_time - start->m_time).count();
    return hipSuccess;
}

}  // extern "C"

FAKE_ROCM_SPT(hipStreamSynchronize);
FAKE_ROCM_SPT(hipStreamQuery);
FAKE_ROCM_SPT(hipStreamWaitEvent);
FAKE_ROCM_SPT(hipStreamGetFlags);
FAKE_ROCM_SPT(hipStreamGetPriority);
FAKE_ROCM_SPT(hipEventRecord);
