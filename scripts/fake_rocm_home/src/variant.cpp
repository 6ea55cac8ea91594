// This file is compiled once for each soname (FAKE_ROCM_SONAME_MAJOR).
namespace fake_rocm {
extern const int k_soname_major;
const int k_soname_major = FAKE_ROCM_SONAME_MAJOR;
}  // namespace fake_rocm
