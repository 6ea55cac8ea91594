// Stands in for the driver's libcuda.so.1. It has no device, and tells each CUDA runtime that asks
// so by another error code. This tells a runtime's errors from those of another copy of it in the
// same process.
#include <cstdlib>
#include <cstring>

extern "C" {

int cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}

int cuInit(unsigned) {
    // If cuInit fails, a runtime unloads the driver and loads it anew. No variable here would last,
    // so the environment keeps the state.
    const char* before = std::getenv("CUDA_DRIVER_ASKED");
    setenv("CUDA_DRIVER_ASKED", before == nullptr ? "1" : "2", 1);
    return before == nullptr ? 100 : 802;  // CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SYSTEM_NOT_READY
}

static int unsupported() { return 801; }

int cuGetExportTable(const void** table, const void*) {
    static const void* functions[512];
    functions[0] = reinterpret_cast<const void*>(sizeof functions);
    for (int i = 1; i < 512; ++i) functions[i] = reinterpret_cast<const void*>(unsupported);
    *table = functions;
    return 0;
}

int cuGetProcAddress_v2(const char* name, void** found, int, unsigned long, int* status) {
    *found = reinterpret_cast<void*>(unsupported);
    if (std::strcmp(name, "cuInit") == 0) *found = reinterpret_cast<void*>(cuInit);
    if (std::strcmp(name, "cuDriverGetVersion") == 0) *found = reinterpret_cast<void*>(cuDriverGetVersion);
    if (std::strcmp(name, "cuGetExportTable") == 0) *found = reinterpret_cast<void*>(cuGetExportTable);
    if (std::strcmp(name, "cuGetProcAddress") == 0) *found = reinterpret_cast<void*>(cuGetProcAddress_v2);
    if (status != nullptr) *status = 0;
    return 0;
}

}  // extern "C"
