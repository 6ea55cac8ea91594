// Reads the list of headers that the shim keeps: the next blob reads it again, from a directory of
// the build.
#include "../../lazyck/interceptor/conf.c"

static char* g_data;
static size_t g_size;
static bool read_kept(const char* path, char** data, size_t* size) {
    (void)path;
    *data = copy_text(g_data, g_size);  // it ends with NUL, as the result of read_file does
    *size = g_size;
    return true;
}
#define read_file read_kept
#define free(block) ((void)(block))  // the arena frees it
#include "../../lazyck/interceptor/headers.c"
#undef free

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Search search;
    Buffer key = {0};
    memset(&search, 0, sizeof search);
    append(&key, "key", 3);
    g_data = (char*)data;
    g_size = size;
    if (recall(&search, "kept", &key) && count(&search) > size) abort();
    arena_free();
    return 0;
}
