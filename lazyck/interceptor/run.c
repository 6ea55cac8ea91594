// Replaces the shim, by exec, with the real compiler or the post-build, in the environment as it is
// without lazyck.
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

char* clean_path(const Conf* conf) {
    Buffer b = {0};
    const char* lead = "";
    for (char** dir = split(getenv("PATH"), ":"); *dir; dir++) {
        size_t n = strlen(*dir);
        while (n > 1 && (*dir)[n - 1] == '/') (*dir)[--n] = 0;
        if (holds(&conf->shim_dirs, *dir)) continue;
        append_text(&b, lead);
        append_text(&b, map_text(&conf->path_map, *dir));
        lead = ":";
    }
    return text_of(&b);
}

void clean_environment(const Conf* conf) {
    check_depth(conf);
    if (getenv("PATH")) setenv("PATH", clean_path(conf), 1);
    // A variable is restored only if it still has lazyck's value: the build may have set another.
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

const char* own_path(void) {
    static char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    return n > 0 ? path : NULL;
}

_Noreturn void start(char** argv) {
    execv(argv[0], argv);
    int why = errno;
    fprintf(stderr, "lazyck: cannot start %s: %s\n  hint: run the build again with `lazyck build full`\n", argv[0],
            strerror(why));
    _exit(why == ENOENT ? 127 : 126);
}

// Runs a command and reads what it writes to `stream`. With `asking`, it runs in that shim's clean
// environment, and its other streams are /dev/null. Returns false if no process can be started.
// Sets `*status` as waitpid(2) does.
bool read_output(char** argv, int stream, const Conf* asking, Buffer* out, int* status) {
    int ends[2];
    char part[1 << 16];
    if (pipe(ends)) return false;
    // A build tool may ignore SIGCHLD. The system would then forget the status.
    void (*before)(int) = signal(SIGCHLD, SIG_DFL);
    pid_t child = fork();
    if (child <= 0) signal(SIGCHLD, before);
    if (child < 0) return false;
    if (!child) {
        int nothing = asking ? open("/dev/null", O_RDWR) : -1;
        for (int each = 0; asking && each < 3; each++) dup2(nothing, each);
        dup2(ends[1], stream);
        close(ends[0]);
        close(ends[1]);
        if (asking) clean_environment(asking);
        start(argv);
    }
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0 || (n < 0 && errno == EINTR);)
        if (n > 0) append(out, part, (size_t)n);
    close(ends[0]);
    while (waitpid(child, status, 0) < 0 && errno == EINTR) continue;
    return true;
}

// Replaces a shim's path in an option (`-ccbin X`, `-ccbin=X`) by the real compiler.
static const char* real_word(const Conf* conf, const char* word) {
    const char* equals = strchr(word, '=');
    const char* path = equals && word[0] == '-' ? equals + 1 : word;
    for (size_t i = 0; i + 1 < conf->path_map.n; i += 2)
        if (!strcmp(path, conf->path_map.v[i]))
            return join_text(copy_text(word, (size_t)(path - word)), conf->path_map.v[i + 1], "");
    return word;
}

// Returns whether CMake asks nvcc for the host compiler that it links with, by a list of nvcc's
// steps. From then on, CMake links CUDA targets by this program's absolute path, without a
// launcher.
static bool is_asked_for_its_steps(const Conf* conf) {
    char cwd[PATH_MAX];
    return !strcmp(conf->toolchain, LAZYCK_TOOLCHAIN_CUDA) && getcwd(cwd, sizeof cwd) &&
           !fnmatch("*/CMakeFiles/*/CompilerId*", cwd, 0);
}

// Returns a line of nvcc's output. The first word of a step, `#$ "/usr/bin"/g++ …`, is replaced by
// a shim's path if it is a host compiler.
static const char* with_shim(const Conf* conf, const char* line) {
    Buffer word = {0};
    if (strncmp(line, "#$ ", 3)) return line;
    const char* p = line + 3;
    for (bool quoted = false; *p && (quoted || *p != ' '); p++) {
        if (*p == '"')
            quoted = !quoted;
        else
            append(&word, p, 1);
    }
    const char* shim = word.n ? shim_by_path(conf, word.data) : NULL;
    return shim ? join_text("#$ \"", shim, join_text("\"", p, "")) : line;
}

// Runs the real nvcc, and replaces its host compilers in its output by shims, however these
// compilers are chosen: by PATH, options, variables, or nvcc.profile.
static _Noreturn void answer_for(const Conf* conf, char** argv) {
    Buffer said = {0};
    int status = 0;
    if (!read_output(argv, STDERR_FILENO, NULL, &said, &status)) start(argv);
    for (char** line = split(said.data, "\n"); *line; line++)
        fprintf(stderr, "%s%s", with_shim(conf, *line), line[1] ? "\n" : "");
    fflush(stderr);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

void run_real(const Conf* conf, char* const* args) {
    List argv = {0};
    for (size_t i = 0; i < conf->real.n; i++) push(&argv, conf->real.v[i]);
    for (; *args; args++) push(&argv, real_word(conf, *args));
    clean_environment(conf);
    if (is_asked_for_its_steps(conf)) answer_for(conf, argv.v);
    start(argv.v);
}

void run_postbuild(const Conf* conf, const char* record) {
    clean_environment(conf);
    signal(SIGCHLD, SIG_DFL);  // else Python takes every compile for a successful one
    start((char*[]){(char*)conf->python, "-I", "-c", (char*)conf->bootstrap, (char*)record, NULL});
}
