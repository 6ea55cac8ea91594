// Reads the `#include` lines of a source, and quotes their names as a depfile does.
#include <stdint.h>

#include "../../lazyck/interceptor/conf.c"
#include "../../lazyck/interceptor/depfile.c"
#include "../../lazyck/interceptor/includes.c"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    char* text = allocate(size);  // not terminated, so that ASan finds a scanner that reads on
    memcpy(text, data, size);
    Scanner scanner;
    Include include;
    size_t count = 0;
    for (scan_text(&scanner, text, size); next_include(&scanner, &include);) {
        if (++count > size) abort();
        if (!include.name) continue;  // the name is a macro's value
        if (!*include.name) abort();
        if (strlen(quote_for_make(include.name)) < strlen(include.name)) abort();
    }
    arena_free();
    return 0;
}
