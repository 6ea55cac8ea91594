// Leaving the shim: exec of the real compiler or of the post-build, in the environment that there would be without us.
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

enum { k_most_depth = 20 };
static const char k_depth_name[] = "LAZYCK_SHIM_DEPTH";

static void check_depth(const Conf* conf) {
    const char* text = getenv(k_depth_name);
    long depth = text ? strtol(text, NULL, 10) : 0;
    if (depth < 0 || depth > k_most_depth) {
        fprintf(stderr,
                "lazyck: the shim for %s was called through itself %ld times: its real compiler, %s, leads back to it\n"
                "  hint: set CXX, HIPCC or CUDACXX to the compiler itself before `lazyck build`\n",
                conf->tool, depth, conf->real.v[0]);
        exit(1);
    }
    char number[32];
    snprintf(number, sizeof number, "%ld", depth + 1);
    setenv(k_depth_name, number, 1);
}

static bool is_shim_dir(const Conf* conf, const char* dir) {
    for (size_t i = 0; i < conf->shim_dirs.n; i++)
        if (!strcmp(conf->shim_dirs.v[i], dir)) return true;
    return false;
}

// CMake asks nvcc which host compiler it would link with, and looks it up on the PATH that nvcc says it has: there it
// must find a shim, because CMake links CUDA targets by that program's absolute path ever after.
static bool is_asked_for_its_path(void) {
    char cwd[PATH_MAX];
    return getcwd(cwd, sizeof cwd) && !fnmatch("*/CMakeFiles/*/CompilerId*", cwd, 0);
}

static void clean_path(const Conf* conf) {
    const char* path = getenv("PATH");
    if (!path || is_asked_for_its_path()) return;
    Buffer b = {0};
    append(&b, "", 0);
    bool first = true;
    for (;;) {
        size_t n = strcspn(path, ":");
        char* dir = copy_text(path, n);
        while (n > 1 && dir[n - 1] == '/') dir[--n] = 0;
        if (!is_shim_dir(conf, dir)) {
            if (!first) append_text(&b, ":");
            append_text(&b, map_text(&conf->path_map, dir));
            first = false;
        }
        path += strcspn(path, ":");
        if (!*path++) break;
    }
    setenv("PATH", b.data, 1);
}

void clean_environment(const Conf* conf) {
    check_depth(conf);
    clean_path(conf);
    // Only a variable that still has our value: the build may have set another.
    for (size_t i = 0; i + 2 < conf->restore.n; i += 3) {
        const char *name = conf->restore.v[i], *before = conf->restore.v[i + 2], *value = getenv(name);
        if (!value || strcmp(value, conf->restore.v[i + 1])) continue;
        if (*before)
            setenv(name, before, 1);
        else
            unsetenv(name);
    }
    for (size_t i = 0; i < conf->env_names.n; i++) {
        const char* value = getenv(conf->env_names.v[i]);
        if (!value) continue;
        setenv(conf->env_names.v[i], map_text(&conf->path_map, value), 1);
    }
}

_Noreturn void start(char** argv) {
    execv(argv[0], argv);
    int why = errno;
    fprintf(stderr, "lazyck: cannot start %s: %s\n  hint: run the build again with `lazyck build full`\n", argv[0],
            strerror(why));
    _exit(why == ENOENT ? 127 : 126);
}

// A compiler that is given another compiler (`-ccbin X`, `-ccbin=X`) is given the real one.
static const char* real_word(const Conf* conf, const char* word) {
    const char* equals = strchr(word, '=');
    const char* path = equals && word[0] == '-' ? equals + 1 : word;
    for (size_t i = 0; i + 1 < conf->path_map.n; i += 2)
        if (!strcmp(path, conf->path_map.v[i]))
            return join_text(copy_text(word, (size_t)(path - word)), conf->path_map.v[i + 1], "");
    return word;
}

void run_real(const Conf* conf, char* const* args) {
    List argv = {0};
    for (size_t i = 0; i < conf->real.n; i++) push(&argv, conf->real.v[i]);
    for (; *args; args++) push(&argv, real_word(conf, *args));
    clean_environment(conf);
    start(argv.v);
}

void run_postbuild(const Conf* conf, const char* record) {
    clean_environment(conf);
    start((char*[]){(char*)conf->python, "-I", "-c", (char*)conf->bootstrap, (char*)record, NULL});
}
