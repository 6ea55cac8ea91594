// Atomic operations; each returns the previous value.
#pragma once
#pragma GCC system_header

namespace fake_rocm {

template <class T>
struct Same {
    using Type = T;
};

template <class T, class F>
T atomic_update(T* address, F&& change) {
    T old;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    for (;;) {
        T wanted = change(old);
        if (__atomic_compare_exchange(address, &old, &wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) return old;
    }
}

}  // namespace fake_rocm

// The operand converts to the type at the address, as with the overloads of the real functions.
#define FAKE_ROCM_ATOMIC(NAME, EXPRESSION)                                                    \
    template <class T>                                                                        \
    T NAME(T* address, typename fake_rocm::Same<T>::Type value) {                             \
        return fake_rocm::atomic_update(address, [value](T old) -> T { return EXPRESSION; }); \
    }                                                                                         \
    template <class T>                                                                        \
    T NAME##_system(T* address, typename fake_rocm::Same<T>::Type value) {                    \
        return NAME(address, value);                                                          \
    }                                                                                         \
    template <class T>                                                                        \
    T NAME##_block(T* address, typename fake_rocm::Same<T>::Type value) {                     \
        return NAME(address, value);                                                          \
    }

FAKE_ROCM_ATOMIC(atomicAdd, old + value)
FAKE_ROCM_ATOMIC(atomicSub, old - value)
FAKE_ROCM_ATOMIC(atomicExch, ((void)old, value))
FAKE_ROCM_ATOMIC(atomicMin, value < old ? value : old)
FAKE_ROCM_ATOMIC(atomicMax, old < value ? value : old)
FAKE_ROCM_ATOMIC(atomicAnd, old& value)
FAKE_ROCM_ATOMIC(atomicOr, old | value)
FAKE_ROCM_ATOMIC(atomicXor, old ^ value)
FAKE_ROCM_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
FAKE_ROCM_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef FAKE_ROCM_ATOMIC

template <class T>
T unsafeAtomicAdd(T* address, typename fake_rocm::Same<T>::Type value) {
    return atomicAdd(address, value);
}
template <class T>
T atomicCAS(T* address, typename fake_rocm::Same<T>::Type expected, typename fake_rocm::Same<T>::Type value) {
    __atomic_compare_exchange(address, &expected, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
