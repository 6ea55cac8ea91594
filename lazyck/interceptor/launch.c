// `lazyck-launch <compiler> <words>`: what build tools write before a compiler that they name by its path. The program
// becomes what the compiler's shim would be: it takes over the configuration for compilers of that name.
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

static const char* name_of(const char* path) {
    const char* slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool holds(const List* list, const char* text) {
    for (size_t i = 0; i < list->n; i++)
        if (!strcmp(list->v[i], text)) return true;
    return false;
}

// Where PATH has `name`; NULL if nowhere.
static const char* find_program(const char* name) {
    if (strchr(name, '/')) return name;
    const char* path = getenv("PATH");
    while (path && *path) {
        size_t n = strcspn(path, ":");
        char* file = join_text(n ? copy_text(path, n) : ".", "/", name);
        if (!access(file, X_OK)) return file;
        path += n + (path[n] == ':');
    }
    return NULL;
}

// The configuration beside `program`, where a shim has one, or NULL.
static const char* conf_beside(const char* program) {
    const char* slash = strrchr(program, '/');
    if (!slash) return NULL;
    char* dir = copy_text(program, (size_t)(slash - program));
    char* file = join_text(dir, "/.lazyck/", join_text(slash + 1, ".conf", ""));
    return access(file, R_OK) ? NULL : file;
}

static const char* conf_for(const Conf* conf, const char* program) {
    for (size_t i = 0; i + 1 < conf->launch.n; i += 2)
        if (!fnmatch(conf->launch.v[i], name_of(program), 0)) return conf->launch.v[i + 1];
    return NULL;
}

static void put_before(List* list, const List* words) {
    List all = {0};
    for (size_t i = 0; i < words->n; i++) push(&all, words->v[i]);
    for (size_t i = 0; i < list->n; i++) push(&all, list->v[i]);
    *list = all;
}

static bool take_conf(Conf* conf, const char* path) {
    Conf other;
    if (!path || !load_conf(&other, path)) return false;
    *conf = other;
    return true;
}

// Makes `*conf` that of the compiler which `*args` begin with, and `*args` the words behind it. False if lazyck does
// not know such a compiler, or `must_exist` and there is none: then `conf->real` is what was asked for all the same.
bool become_compiler(Conf* conf, char*** args, bool must_exist) {
    const Conf launcher = *conf;
    List before = {0};  // `ccache`
    for (; **args; ++*args) {
        if (!strcmp(name_of(**args), launcher.tool)) continue;  // ourselves once more
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
    const char* beside = conf_beside(program);
    if (!beside && real) beside = conf_beside(real);
    if (beside && take_conf(conf, beside)) {
        if (conf->real.n == conf->compiler.n) put_before(&conf->real, &before);
        return true;
    }
    const char *tool = name_of(program), *path = conf_for(&launcher, program);
    List compiler = {0};
    push(&compiler, program);
    if (real && holds(&launcher.launchers, name_of(real))) {
        // a compiler cache that goes by a compiler's name: records need the compiler itself, which our shim knows
        Conf own;
        path = NULL;
        for (size_t i = 0; i < launcher.shim_dirs.n && !path; i++)
            path = conf_beside(join_text(launcher.shim_dirs.v[i], "/", tool));
        if (path && load_conf(&own, path)) compiler = own.compiler;
    }
    bool known = !(must_exist && access(program, X_OK)) && take_conf(conf, path);
    conf->is_launched = true;
    if (known && !*conf->target) conf->target = tool;
    conf->tool = tool;
    conf->compiler = compiler;
    conf->real = (List){0};
    push(&conf->real, program);
    put_before(&conf->real, &before);
    return known;
}

// The directories above `path`, as far as they are missing.
void make_parents(const char* path) {
    char* text = copy_text(path, strlen(path));
    for (char* p = text + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(text, 0777);  // what fails here fails again when the file is written
        *p = '/';
    }
}
