// Reads a command line: response files of both languages, then what the option table makes of the
// words.
//
// LAZYCK_FUZZ_CONF names a real configuration of a shim (run.sh has one written).
#include <stdint.h>

#include "../../lazyck/interceptor/conf.c"
#include "../../lazyck/interceptor/words.c"

extern char** environ;

int LLVMFuzzerInitialize(int* argc, char*** argv);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static Conf g_conf;

int LLVMFuzzerInitialize(int* argc, char*** argv) {
    (void)argc, (void)argv;
    const char* path = getenv("LAZYCK_FUZZ_CONF");
    if (!path || !load_conf(&g_conf, path)) abort();
    g_block_count = 0;  // the configuration is never freed
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (!size) return 0;
    char* text = copy_text((const char*)data + 1, size - 1);
    List words = {0};
    split_file(text, text + size - 1, &words, data[0] & 1);
    static Command cmd;
    memset(&cmd, 0, sizeof cmd);
    if (words.n) cmd.has_odd_response = !expand_words(&g_conf, words.v, &cmd.args);
    if (!cmd.args.n) push(&cmd.args, "x");
    Verdict verdict = classify(&g_conf, &cmd, "/nonexistent/here");
    if (!verdict.reason) abort();
    if (verdict.action == k_defer) {
        Buffer record = make_record(&g_conf, &cmd, &verdict, "/nonexistent/here");
        if (!record.n || !depfile_path(&cmd)) abort();
    }
    arena_free();
    return 0;
}
