// Decides whether to defer a command, link, or pass the command on to the compiler.
// reasons.py explains the reasons. In doubt, the command is passed on.
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

static void refuse(const char** at, const char* reason) {
    if (!*at) *at = reason;
}

static void add_linker_words(Command* cmd, const char* value) {
    for (char** word = split(value, ","); *word; word++) {
        if (!strcmp(*word, "-r") || !strcmp(*word, "--relocatable")) refuse(&cmd->refusal, LAZYCK_WHY_RELOCATABLE_LINK);
        push(&cmd->linker_words, *word);
    }
}

static void add_includes(const Conf* conf, Command* cmd, char kind, const char* value) {
    char lead[2] = {kind, 0};
    for (char** path = split(value, *conf->lists_paths ? "," : ""); *path; path++) {
        if (**path) push(&cmd->includes, join_text(lead, *path, ""));
        // a path in the sysroot, or the list's divider
        if (**path == '=' || !strncmp(*path, "$SYSROOT", 8) || !strcmp(*path, "-")) cmd->has_other_includes = true;
    }
}

// Lists roles of options, each list with a NUL behind it.
static const char k_of_compiler[] = {LAZYCK_ROLE_REFUSE_IF_TRUE, LAZYCK_ROLE_WORDS, LAZYCK_ROLE_HOST_COMPILER,
                                     LAZYCK_ROLE_UNKNOWN, 0};
static const char k_of_headers[] = {LAZYCK_ROLE_INCLUDE,       LAZYCK_ROLE_INCLUDE_QUOTED, LAZYCK_ROLE_INCLUDE_SYSTEM,
                                    LAZYCK_ROLE_INCLUDE_AFTER, LAZYCK_ROLE_INCLUDE_FILE,   0};
static const char k_of_refusal[] = {LAZYCK_ROLE_REFUSE, LAZYCK_ROLE_REFUSE_COMPILE, 0};
static const char k_of_depfile[] = {LAZYCK_ROLE_DEPEND, LAZYCK_ROLE_DEPEND_USER, LAZYCK_ROLE_DEPEND_WORDS,
                                    LAZYCK_ROLE_DEPEND_WORDS_USER, 0};

static void refuse_unknown(Command* cmd, const char* word) {
    refuse(&cmd->compile_refusal,
           join_text(LAZYCK_WHY_UNKNOWN_OPTION ":", copy_text(word, strcspn(word, "= \t\r\n,")), ""));
}

static void take_words(const Conf* conf, Command* cmd, const Rule* rule);

// Handles a word that is handed to another program or to a part of this one.
static void take_word(const Conf* conf, Command* cmd, const char* lead, const char* word) {
    const bool is_value = cmd->waiting.mode;
    Rule rule = is_value ? cmd->waiting : find_rule(conf, join_text(lead, word, ""));
    cmd->waiting = (Rule){0};
    if (is_value) rule.value = word;
    if (rule.mode == LAZYCK_MODE_SEPARATE && !is_value)
        cmd->waiting = rule;
    else if (rule.role == LAZYCK_ROLE_WORDS)
        take_words(conf, cmd, &rule);
    else if (rule.role == LAZYCK_ROLE_REFUSE_COMPILE)
        refuse(&cmd->compile_refusal, rule.reason);
    else if (strchr(LAZYCK_ROLES_OF_HEADERS, rule.role))
        cmd->has_other_includes = true;
    else if (rule.role != LAZYCK_ROLE_FLAG)
        refuse_unknown(cmd, word);
}

// nvcc takes lists, and gcc takes them behind a comma: `-Wp,-DX,-DY`. Any other value is one word.
static void take_words(const Conf* conf, Command* cmd, const Rule* rule) {
    const char* const others = rule->mode == LAZYCK_MODE_PREFIX ? "," : "";
    for (char** word = split(rule->value, *conf->lists_paths ? ", \t\n'\"" : others); *word; word++)
        if (**word) take_word(conf, cmd, rule->reason, *word);
}

static void take_option(const Conf* conf, Command* cmd, const Rule* rule, const char* word) {
    const char role = rule->role, *value = rule->value;
    if (role == LAZYCK_ROLE_COMPILE) cmd->compiles = true;
    if (role == LAZYCK_ROLE_OUTPUT) cmd->output = value;
    // A later one does not apply to the source before it.
    if (role == LAZYCK_ROLE_LANGUAGE && !cmd->inputs.n) cmd->language = value;
    if (strchr(k_of_depfile, role)) {
        cmd->omits_system_headers = role == LAZYCK_ROLE_DEPEND_USER || role == LAZYCK_ROLE_DEPEND_WORDS_USER;
        cmd->depends = true;
        // The driver says what the object is called, unless the words are for the preprocessor.
        cmd->names_source = role == LAZYCK_ROLE_DEPEND_WORDS || role == LAZYCK_ROLE_DEPEND_WORDS_USER;
        if (*value) cmd->depfile = *split(value, ",");
    }
    if (role == LAZYCK_ROLE_DEPEND_PHONY) cmd->has_phony_targets = true;
    if (role == LAZYCK_ROLE_DEPEND_FILE) cmd->depfile = value;
    if (role == LAZYCK_ROLE_DEPEND_TARGET) push(&cmd->targets, value);
    if (role == LAZYCK_ROLE_DEPEND_QUOTED) push(&cmd->targets, quote_for_make(value));
    if (strchr(k_of_headers, role)) add_includes(conf, cmd, role, value);
    if (role == LAZYCK_ROLE_INCLUDE_OTHER) cmd->has_other_includes = true;
    if (role == LAZYCK_ROLE_LIBRARY) push(&cmd->libraries, value);
    if (role == LAZYCK_ROLE_LIBRARY_DIR) push(&cmd->library_dirs, value);
    if (role == LAZYCK_ROLE_LINKER) add_linker_words(cmd, value);
    if (role == LAZYCK_ROLE_HOST_COMPILER) cmd->host_compiler = value;
    if (role == LAZYCK_ROLE_WORDS) take_words(conf, cmd, rule);
    if (role == LAZYCK_ROLE_UNKNOWN) refuse_unknown(cmd, word);
    if (role == LAZYCK_ROLE_TARGET) cmd->target = value;
    if (role == LAZYCK_ROLE_STATIC) cmd->links_statically = true;
    if (role == LAZYCK_ROLE_REFUSE) refuse(&cmd->refusal, rule->reason);
    if (role == LAZYCK_ROLE_REFUSE_COMPILE) refuse(&cmd->compile_refusal, rule->reason);
    if (role == LAZYCK_ROLE_REFUSE_IF_TRUE && !strcasecmp(value, "true")) refuse(&cmd->compile_refusal, rule->reason);
}

static void parse(const Conf* conf, Command* cmd) {
    for (size_t i = 0; i < cmd->args.n; i++) {
        const char* word = cmd->args.v[i];
        if (word[0] != '-' || !word[1]) {
            push(&cmd->inputs, word);
            continue;
        }
        Rule rule = find_rule(conf, word);
        if (rule.mode == LAZYCK_MODE_SEPARATE) {
            if (i + 1 == cmd->args.n)
                refuse(&cmd->refusal, LAZYCK_WHY_UNSUPPORTED_OPTION);  // the compiler reports the error
            else
                rule.value = cmd->args.v[++i];
        }
        take_option(conf, cmd, &rule, word);
    }
}

// Handles variables whose words the driver adds to its own options: they too can turn a compile
// into something else. Options there that name files are refused, since a record cannot describe
// them.
static void parse_environment(const Conf* conf, Command* cmd) {
    for (size_t i = 0; i < conf->option_env.n; i++) {
        Rule waiting = {0};  // an option whose value is the next word
        for (char** word = split(getenv(conf->option_env.v[i]), " \t\n'\""); *word; word++) {
            if (!**word) continue;
            Rule rule = waiting;
            if (waiting.mode) {
                rule.value = *word;
                waiting = (Rule){0};
            } else if (**word != '-' || !(*word)[1]) {
                continue;
            } else {
                rule = find_rule(conf, *word);
                if (strchr(LAZYCK_ROLES_OF_HEADERS, rule.role)) cmd->has_other_includes = true;
                if (strchr(k_of_refusal, rule.role)) refuse(&cmd->refusal, rule.reason);
                if (rule.role == LAZYCK_ROLE_RESPONSE) refuse(&cmd->compile_refusal, LAZYCK_WHY_RESPONSE_FILE);
                bool names_no_file = rule.role == LAZYCK_ROLE_COMPILE || rule.role == LAZYCK_ROLE_DEPEND_PHONY;
                if (rule.role == LAZYCK_ROLE_LANGUAGE || (!names_no_file && strchr(LAZYCK_ROLES_OF_OUTPUTS, rule.role)))
                    refuse(&cmd->compile_refusal, LAZYCK_WHY_UNSUPPORTED_OPTION);
                if (rule.mode == LAZYCK_MODE_SEPARATE) waiting = rule;
            }
            if (!waiting.mode && strchr(k_of_compiler, rule.role)) take_option(conf, cmd, &rule, *word);
        }
    }
    // gcc and clang write what a source reads into the files that these name.
    const char *gnu = getenv("DEPENDENCIES_OUTPUT"), *sun = getenv("SUNPRO_DEPENDENCIES");
    if ((gnu && *gnu) || (sun && *sun)) refuse(&cmd->compile_refusal, LAZYCK_WHY_OTHER_OUTPUT);
    for (size_t i = 0; i + 2 < conf->pass_when.n; i += 3) {
        const char* value = getenv(conf->pass_when.v[i]);
        if (!strcmp(value ? value : "", conf->pass_when.v[i + 1]))
            refuse(&cmd->compile_refusal, conf->pass_when.v[i + 2]);
    }
}

// Returns `path` joined to `cwd`, without `.`, `..` and doubled slashes. As for the kernel, `..`
// leads out of the directory that a link leads to.
char* absolute_path(const char* cwd, const char* path) {
    char* full = path[0] == '/' ? copy_text(path, strlen(path)) : join_text(cwd, "/", path);
    char* last = NULL;
    for (char* at = full; (at = strstr(at, "/..")); at += 3)
        if (!at[3] || at[3] == '/') last = at + 3;
    if (last) {
        const char* real = realpath(copy_text(full, (size_t)(last - full)), NULL);
        if (real) full = join_text(real, last, "");
    }
    char *out = full, *p = full;
    while (*p) {
        while (*p == '/') p++;
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.') {
            while (out > full && *--out != '/') {
            }
        } else if (n && !(n == 1 && p[0] == '.')) {
            *out++ = '/';
            memmove(out, p, n);
            out += n;
        }
        p += n;
    }
    if (out == full) *out++ = '/';
    *out = 0;
    return full;
}

static bool is_same_file(const char* a, const char* b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool is_listed(const Conf* conf, const char* path) {
    static char* data;
    static size_t size;
    if (!*conf->listed) return false;
    if (!data && !read_file(conf->listed, &data, &size)) return false;
    for (const char* at = data; at < data + size; at += strlen(at) + 1)
        if (!strcmp(at, path)) return true;
    return false;
}

static bool matches(const List* globs, const char* path) {
    for (size_t i = 0; i < globs->n; i++)
        if (!fnmatch(globs->v[i], path, 0)) return true;
    return false;
}

static bool is_whole_blob(const Conf* conf, const char* path) {
    return matches(&conf->blobs, path) || is_listed(conf, path);
}

bool is_blob(const Conf* conf, const char* source, const char* given) {
    if (is_whole_blob(conf, source) || matches(&conf->units, source)) return true;
    const char* real = realpath(given, NULL);
    return real && (is_whole_blob(conf, real) || matches(&conf->units, real));
}

bool is_unit(const Conf* conf, const char* source) {
    const char* real = realpath(source, NULL);
    return !is_whole_blob(conf, source) && !(real && is_whole_blob(conf, real));
}

static bool is_probe(const char* path, const char* cwd) {
    static const char* const k_dirs[] = {"/CMakeFiles/CMakeScratch/", "/CMakeFiles/CMakeTmp/", "/meson-private/"};
    char* paths[] = {(char*)path, join_text(cwd, "/", "")};
    for (size_t p = 0; p < 2; p++) {
        for (size_t i = 0; i < sizeof k_dirs / sizeof *k_dirs; i++)
            if (strstr(paths[p], k_dirs[i])) return true;
        if (!fnmatch("*/CMakeFiles/*/CompilerId*/*", paths[p], 0)) return true;
    }
    return !strncmp(name_of(path), "conftest.", 9);  // autoconf
}

static const char* pair_value(const List* pairs, const char* key) {
    for (size_t i = 0; i + 1 < pairs->n; i += 2)
        if (!strcmp(pairs->v[i], key)) return pairs->v[i + 1];
    return NULL;
}

static const char* suffix_of(const char* path) {
    const char* dot = strrchr(name_of(path), '.');
    return dot ? dot : "";
}

static bool is_assembler_suffix(const char* s) { return !strcmp(s, ".s") || !strcmp(s, ".S") || !strcmp(s, ".sx"); }

// Returns the reason to pass a compile on, or NULL. Sets the toolchain whose recipes the source
// follows.
static const char* language_refusal(const Conf* conf, const Command* cmd, const char* source, const char** toolchain) {
    if (cmd->language && strcmp(cmd->language, "none")) {
        if (!strncmp(cmd->language, "assembler", 9)) return LAZYCK_WHY_ASSEMBLY;
        *toolchain = pair_value(&conf->languages, cmd->language);
        if (!*toolchain) return LAZYCK_WHY_LANGUAGE;
    } else {
        const char* suffix = suffix_of(source);
        *toolchain = pair_value(&conf->suffixes, suffix);
        if (!*toolchain) return is_assembler_suffix(suffix) ? LAZYCK_WHY_ASSEMBLY : LAZYCK_WHY_NO_SOURCE;
    }
    if (**toolchain == '!') return *toolchain + 1;
    if (!**toolchain) *toolchain = conf->toolchain;
    return NULL;
}

static const char* output_refusal(const char* output, const char* absolute) {
    struct stat st;
    if (!output || !*output) return LAZYCK_WHY_NO_OUTPUT;
    if (!strcmp(output, "-")) return LAZYCK_WHY_STDOUT;
    if (!strcmp(absolute, "/dev/null")) return LAZYCK_WHY_DEV_NULL;
    if (!stat(absolute, &st) && !S_ISREG(st.st_mode)) return LAZYCK_WHY_UNUSUAL_OUTPUT;
    return NULL;
}

// Returns whether the link is invisible to lazyck. CMake links CUDA with the host compiler, without
// a launcher, so no shim sees the link if the host compiler and nvcc are called by their own paths.
static bool is_link_unseen(const Conf* conf, const Command* cmd) {
    const char* host_compiler = cmd->host_compiler ? cmd->host_compiler : getenv("NVCC_CCBIN");
    if (!conf->is_launched || conf->sees_links || strcmp(conf->toolchain, LAZYCK_TOOLCHAIN_CUDA)) return false;
    return host_compiler && strchr(host_compiler, '/') && !holds(&conf->shim_dirs, directory_of(host_compiler));
}

static const char* refuse_compile(const Conf* conf, Command* cmd, Verdict* verdict, const char* cwd) {
    if (cmd->compile_refusal) return cmd->compile_refusal;
    if (is_link_unseen(conf, cmd)) return LAZYCK_WHY_UNSEEN_LINK;
    if (cmd->inputs.n > 1) return LAZYCK_WHY_SEVERAL_SOURCES;
    const char *given = cmd->inputs.v[0], *reason;
    verdict->source = absolute_path(cwd, given);
    if ((reason = language_refusal(conf, cmd, given, &verdict->toolchain))) return reason;
    if (cmd->output) verdict->output = absolute_path(cwd, cmd->output);
    if ((reason = output_refusal(cmd->output, verdict->output))) return reason;
    if (is_probe(verdict->source, cwd)) return LAZYCK_WHY_TRY_COMPILE;
    if (!is_same_file(verdict->source, given)) {  // `..` after a symlink, or no such file
        const char* real = realpath(given, NULL);
        if (real) verdict->source = real;
    }
    if (!is_blob(conf, verdict->source, given)) return LAZYCK_WHY_NOT_A_BLOB;
    struct stat st;
    if (access(given, R_OK) || stat(given, &st) || !S_ISREG(st.st_mode)) return LAZYCK_WHY_SOURCE_UNREADABLE;
    verdict->machine = machine_of(cmd->target ? cmd->target : conf->target);
    return verdict->machine ? NULL : LAZYCK_WHY_OTHER_MACHINE;
}

static bool is_source(const Conf* conf, const Command* cmd, const char* input) {
    const char* suffix = suffix_of(input);
    return cmd->language || pair_value(&conf->suffixes, suffix) || is_assembler_suffix(suffix);
}

static bool has_source(const Conf* conf, const Command* cmd) {
    for (size_t i = 0; i < cmd->inputs.n; i++)
        if (is_source(conf, cmd, cmd->inputs.v[i])) return true;
    return cmd->language != NULL;
}

// Returns whether the real compiler, called for this reason, compiles sources to get their objects.
static bool is_real_compile(const char* reason) {
    static const char* const k_others[] = {
        LAZYCK_WHY_QUERY,
        LAZYCK_WHY_DRY_RUN,
        LAZYCK_WHY_PREPROCESS,
        LAZYCK_WHY_DEPENDENCIES,
        LAZYCK_WHY_SYNTAX_ONLY,
        LAZYCK_WHY_STDIN,
        LAZYCK_WHY_DEV_NULL,
        LAZYCK_WHY_STDOUT,
        LAZYCK_WHY_NO_INPUT,
        LAZYCK_WHY_LINK_WITHOUT_BLOBS,
        LAZYCK_WHY_RELOCATABLE_LINK,
        LAZYCK_WHY_DEVICE_LINK,
        LAZYCK_WHY_RESPONSE_FILE,
        LAZYCK_WHY_TRY_COMPILE,
        LAZYCK_WHY_ARCHIVE,
        LAZYCK_WHY_SOURCE_UNREADABLE,
    };
    for (size_t i = 0; i < sizeof k_others / sizeof *k_others; i++)
        if (!strcmp(reason, k_others[i])) return false;
    return true;
}

// Records what the real compiler is about to compile and how many of the sources are blobs. The
// summary and the list of compiles use this.
static void note_sources(const Conf* conf, Command* cmd, Verdict* verdict, const char* cwd) {
    if (!strcmp(verdict->reason, LAZYCK_WHY_LINK_WITHOUT_BLOBS)) verdict->blobs = count_passed_inputs(conf, cmd, cwd);
    if (!is_real_compile(verdict->reason)) return;
    for (size_t i = 0; i < cmd->inputs.n; i++) {
        const char* given = cmd->inputs.v[i];
        if (!is_source(conf, cmd, given)) continue;
        char* source = absolute_path(cwd, given);
        if (is_probe(source, cwd)) {
            cmd->sources.n = verdict->blobs = 0;
            return;
        }
        push(&cmd->sources, source);
        if (!strcmp(verdict->reason, LAZYCK_WHY_NOT_A_BLOB) || !is_blob(conf, source, given)) continue;
        if (!verdict->blobs++) verdict->source = source;
    }
}

static const char* common_refusal(const Command* cmd) {
    if (cmd->has_odd_response) return LAZYCK_WHY_RESPONSE_FILE;
    if (cmd->refusal) return cmd->refusal;
    if (!cmd->inputs.n && !cmd->linker_words.n && !cmd->libraries.n) return LAZYCK_WHY_NO_INPUT;
    for (size_t i = 0; i < cmd->inputs.n; i++) {
        if (!strcmp(cmd->inputs.v[i], "-")) return LAZYCK_WHY_STDIN;
        if (!strcmp(cmd->inputs.v[i], "/dev/stdin")) return LAZYCK_WHY_STDIN;
        if (!strcmp(cmd->inputs.v[i], "/dev/null")) return LAZYCK_WHY_DEV_NULL;
    }
    return NULL;
}

static const char* decide(const Conf* conf, Command* cmd, Verdict* verdict, const char* cwd) {
    const char* reason = common_refusal(cmd);
    if (reason) return reason;
    if (cmd->compiles) {
        if (!cmd->inputs.n) return LAZYCK_WHY_NO_INPUT;
        if ((reason = refuse_compile(conf, cmd, verdict, cwd))) return reason;
        verdict->action = k_defer;
        verdict->blobs = 1;
        push(&cmd->sources, verdict->source);
        return LAZYCK_WHY_BLOB;
    }
    if (!has_deferred_input(cmd))
        return has_source(conf, cmd) ? LAZYCK_WHY_COMPILE_AND_LINK : LAZYCK_WHY_LINK_WITHOUT_BLOBS;
    verdict->action = k_link;
    verdict->output = absolute_path(cwd, cmd->output ? cmd->output : "a.out");
    return LAZYCK_WHY_DEFERRED_INPUT;
}

Verdict classify(const Conf* conf, Command* cmd, const char* cwd) {
    Verdict verdict = {.action = k_pass, .toolchain = conf->toolchain};
    parse(conf, cmd);
    if (!cmd->output && cmd->other_output && *cmd->other_output) {
        cmd->output = cmd->other_output;
        push(&cmd->args, "-o");
        push(&cmd->args, cmd->output);
    }
    if (cmd->compiles) parse_environment(conf, cmd);
    verdict.reason = decide(conf, cmd, &verdict, cwd);
    if (verdict.action == k_pass) {
        verdict.toolchain = conf->toolchain;
        if (cmd->output) verdict.output = absolute_path(cwd, cmd->output);
        note_sources(conf, cmd, &verdict, cwd);
    }
    return verdict;
}
