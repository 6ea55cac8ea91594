// Implements `lazyck-launch <compiler> <words>`, which build tools write before a compiler that
// they name by its path. The program does what the compiler's shim would do: it uses the
// configuration for compilers of that name.
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

// Returns the path of `name` in PATH, or NULL.
static const char* find_program(const char* name) {
    if (strchr(name, '/')) return name;
    for (char** dir = split(getenv("PATH"), ":"); *dir; dir++) {
        char* file = join_text(**dir ? *dir : ".", "/", name);
        if (!access(file, X_OK)) return file;
    }
    return NULL;
}

static const char* conf_for(const Conf* conf, const char* program) {
    for (size_t i = 0; i + 1 < conf->launch.n; i += 2)
        if (!fnmatch(conf->launch.v[i], name_of(program), 0)) return conf->launch.v[i + 1];
    return NULL;
}

static bool take_conf(Conf* conf, const char* path) {
    Conf other;
    if (!path || !load_conf(&other, path)) return false;
    *conf = other;
    return true;
}

// Sets `*conf` to the configuration of the compiler that `*args` begin with, and `*args` to the
// words after it. Returns false if lazyck does not know the compiler, or if `must_exist` and there
// is no such file. Even then, `conf->real` is the command that was given.
bool become_compiler(Conf* conf, char*** args, bool must_exist) {
    const Conf launcher = *conf;
    List before = {0};  // for example `ccache`
    for (; **args; ++*args) {
        if (!strcmp(name_of(**args), launcher.tool)) continue;  // the launcher itself, once more
        if (!holds(&launcher.launchers, name_of(**args))) break;
        const char* program = before.n ? **args : find_program(**args);
        push(&before, program ? program : **args);
    }
    if (!**args) {
        conf->real = before;
        return false;
    }
    const char* found = find_program(**args);
    const char* program = found ? found : **args;
    ++*args;
    char* real = realpath(program, NULL);
    if (take_conf(conf, conf_of(program)) || (real && take_conf(conf, conf_of(real)))) {
        if (conf->real.n == conf->compiler.n) {
            for (size_t i = 0; i < conf->real.n; i++) push(&before, conf->real.v[i]);
            conf->real = before;
        }
        return true;
    }
    const char *tool = name_of(program), *path = conf_for(&launcher, program);
    List compiler = {0};
    push(&compiler, program);
    if (real && holds(&launcher.launchers, name_of(real))) {
        // This is a compiler cache under a compiler's name. Records need the compiler itself, which
        // the shim of that name knows.
        Conf own;
        path = NULL;
        for (size_t i = 0; i < launcher.shim_dirs.n && !path; i++) {
            const char* beside = conf_of(join_text(launcher.shim_dirs.v[i], "/", tool));
            if (!load_conf(&own, beside)) continue;
            path = beside;
            compiler = own.compiler;
        }
    }
    bool known = !(must_exist && access(program, X_OK)) && take_conf(conf, path);
    conf->is_launched = true;
    if (known && !*conf->target) conf->target = tool;
    conf->tool = tool;
    conf->compiler = compiler;
    push(&before, program);
    conf->real = before;
    return known;
}

static const char k_by_path[] = "/by-path/";
static const char k_launcher[] = "/bin/.lazyck/lazyck-launch.conf";

// Returns the launcher's configuration if the program `self` is
// `<tmp>/by-path/<path of a compiler>`, and sets `*compiler` to this path. Returns NULL for other
// programs.
char* launcher_conf(const char* self, const char** compiler) {
    for (const char* at = self; (at = strstr(at, k_by_path)); at++) {
        char* conf = join_text(copy_text(self, (size_t)(at - self)), k_launcher, "");
        if (access(conf, R_OK)) continue;
        *compiler = at + sizeof k_by_path - 2;
        return conf;
    }
    return NULL;
}

// Returns a shim for the compiler `program`, which may be a bare name: `<tmp>/by-path/usr/bin/g++`.
// It is for places where CMake takes a path and no launcher: the shim is the launcher, with its
// first word in its own name. Returns NULL if the program is not a compiler that lazyck knows, or
// is a shim.
const char* shim_by_path(const Conf* conf, const char* program) {
    char* tmp = directory_of(conf->links);
    Conf launcher;
    const char* path = find_program(program);
    if (!path || *path != '/' || access(path, X_OK) || !access(conf_of(path), R_OK)) return NULL;
    if (!load_conf(&launcher, join_text(tmp, k_launcher, "")) || !conf_for(&launcher, path)) return NULL;
    char* shim = join_text(tmp, "/by-path", path);
    if (!access(shim, X_OK)) return shim;
    const char* self = own_path();
    if (!self) return NULL;
    make_parents(shim);
    if (!link(self, shim) || errno == EEXIST) return shim;
    Buffer content = {0};  // for a file system without hard links
    size_t size;
    if (!read_file(self, &content.data, &size)) return NULL;
    content.n = size;
    return write_whole(shim, &content) && !chmod(shim, 0755) ? shim : NULL;
}

// Creates the missing directories above `path`.
void make_parents(const char* path) {
    char* text = copy_text(path, strlen(path));
    for (char* p = text + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(text, 0777);  // a failure here shows again when the file is written
        *p = '/';
    }
}
