#include "compile/compile.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/failure.h"
#include "base/hash.h"
#include "base/text.h"
#include "bundle/arch.h"
#include "cache/entry.h"
#include "cache/texts.h"
#include "compile/private_names.h"
#include "lazyck_abi.h"
#include "platform/config.h"
#include "platform/staging.h"

namespace lazyck::rt {

namespace {

using Clock = std::chrono::steady_clock;
constexpr char k_product[] = "blob.so";
constexpr std::size_t k_longest_error_line = 500;
constexpr std::size_t k_longest_cost = 200;
constexpr std::size_t k_longest_output = 16 << 20;  // a compiler's first error stands before that

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// How a failure is to be treated; see failure.h.
struct Verdict {
    bool is_final = false;
    int place_error = 0;
    bool is_of_memory = false;
};

// One compilation.
class Compilation {
 public:
    Compilation(const CompileRequest& request, Cache& cache, const EntryKey& key)
        : m_request(request),
          m_cache(cache),
          m_key(key),
          m_staging(cache.staging_prefix(key), k_depth_of_staging),
          m_entry(cache.entry_path(key)),
          m_log(cache.log_path(key)),
          m_log_fd(open_at(m_staging.fd(), "log", O_RDWR | O_CREAT | O_APPEND)) {
        if (!m_log_fd) fail_system("cannot write '" + m_staging.path() + "/log'", errno);
        RecipeValues values = request.values;
        if (!values.root.empty() && symlinkat(values.root.c_str(), m_staging.fd(), LAZYCK_BUNDLE_LINK) != 0)
            fail_system("cannot make a link in '" + m_staging.path() + "'", errno);
        // The names are relative, so that the command works in any directory in which it is
        // repeated.
        values.object = k_object;
        values.output = k_product;
        if (!values.root.empty()) values.root = LAZYCK_BUNDLE_LINK;
        values.toolchain = find_toolchain(request.recipe);
        m_plan = make_plan(request.recipe, values);
    }

    // Compiles, and announces the end, also of a failure.
    Made run() {
        try {
            return compile();
        } catch (const std::exception&) {
            const bool has_other_way = m_request.has_other_way;
            say(has_other_way ? Level::info : Level::error,
                has_other_way
                    ? m_request.subject.words + " cannot be compiled alone: the whole blob is compiled instead"
                    : "could not compile " + m_request.subject.words,
                {"compile_end", m_request.subject, seconds_since(m_start), "failed"});
            throw;
        }
    }

 private:
    Made compile() {
        const double expected = m_request.expected_seconds;
        say(Level::info,
            "compiling " + m_request.subject.words +
                (expected > 0 ? " (about " + seconds_text(expected) + ") ..." : " ..."),
            {"compile_begin", m_request.subject});
        if (m_plan.link.empty()) {
            run_step("compile", m_plan.compile, k_product);
        } else {
            if (!is_known_by_text() && !is_compiled_faster()) run_step("compile", m_plan.compile, k_object);
            if (!m_is_taken_over) {
                name_privately();
                run_step("link", m_plan.link, k_product);
            }
        }
        UniqueFd output = open_at(m_staging.fd(), k_product, O_RDWR | O_APPEND);
        if (!output) fail_system("cannot open '" + m_staging.path() + "/blob.so'", errno);
        const std::string fault = find_fault(output.get(), m_key.machine, m_request.symbols);
        // A compiler whose end nobody saw may have been killed. One that succeeded would make the
        // same file again.
        if (!fault.empty()) fail_here(fault, "", {m_is_end_known, 0});
        // The key says what the sources were; they were checked before the compile.
        const std::string change = m_request.find_change();
        if (!change.empty()) {
            fail_here("the bundle was changed while it was compiled from: " + change,
                      "the result would go into the cache under a key that it does not match", {false, 0});
        }
        seal_entry(output.get(), m_key.id(), m_text.is_text ? m_text.id() : Digest());
        if (!m_is_taken_over) tell_making(output.get());
        keep_log();
        publish(m_staging.fd(), k_product, m_entry);
        if (m_text.is_text) keep_text(m_cache, m_text, m_key);
        const double spent = seconds_since(m_start);
        say(Level::info,
            (m_is_taken_over ? "took over " : "compiled ") + m_request.subject.words + " in " + seconds_text(spent) +
                (m_is_taken_over ? ": an existing entry was made from the same text" : ""),
            {"compile_end", m_request.subject, spent, m_is_taken_over ? "reused" : "compiled"});
        return {std::move(output), m_text, m_is_taken_over};
    }

    // Ends the log with a line for _lazyck/remote/provenance.py. The entry itself has no time.
    void tell_making(int entry) const {
        MappedFile file;
        if (file.map(entry) != 0) return;
        const double now = now_seconds();
        JsonObject made;
        made.add_text("sha256", sha256_hex(file.data(), file.size()));
        made.add("started", decimal(now - seconds_since(m_start), 3));
        made.add("finished", decimal(now, 3));
        made.add_text("host", host_name());
        made.add_text("bundle", m_request.bundle);
        made.add_text("digest", m_key.digest);
        made.add_text("toolchain", m_key.toolchain_id);
        write_all(m_log_fd.get(), "[made " + made.text() + "]\n");
    }

    void name_privately() {
        const UniqueFd object = open_at(m_staging.fd(), k_object, O_RDWR);
        if (!object) fail_system("cannot open '" + m_staging.path() + "/" + k_object + "'", errno);
        const std::string fault = give_private_names(object.get(), m_request.private_names);
        if (!fault.empty()) fail_here(fault, "", {m_is_end_known, 0});
    }

    bool is_known_by_text() {
        if (m_request.text.empty()) return false;
        Strings argv = m_request.text;
        argv.insert(argv.end(), m_plan.compile.begin(), m_plan.compile.end());
        run(argv);
        return m_is_taken_over;
    }

    bool is_compiled_faster() {
        if (m_plan.compile.empty()) return false;
        if (!m_request.beside.empty() && is_compiled_by(m_request.beside)) return true;
        if (m_request.faster.empty()) return false;
        if (is_compiled_by({})) return true;
        m_request.refused_faster();
        return false;
    }

    bool is_compiled_by(const Strings& before) {
        Strings argv = before;
        argv.insert(argv.end(), m_plan.compile.begin(), m_plan.compile.end());
        argv.insert(argv.end(), m_request.faster.begin(), m_request.faster.end());
        const Outcome outcome = run(argv);
        if (outcome.ending == Ending::succeeded && is_file_in(m_staging.fd(), k_object)) return true;
        write_all(m_log_fd.get(), "[" + outcome.text + "; the plain command:]\n");
        return false;
    }

    // Returns whether `argv` is a command of `lazyck-unit` that asks for what was made of a text
    // (units/src/units.h).
    bool asks(const Strings& argv) const {
        if (!m_request.find_text || !m_request.values.launcher.empty() || argv.size() < 2) return false;
        return argv[1] == "kernel" || argv[1] == "hip-kernel" || argv[1] == "entry" || argv[1] == "hip-text";
    }

    // Returns the digest of the text that lazyck-unit left, and of the steps that follow here;
    // zeros if it left none.
    Digest digest_of_text() const {
        std::string all = read_text(
            open_at(m_staging.fd(), m_plan.link.empty() ? "blob.so.text" : "blob.o.text", O_RDONLY).get(), 0, SIZE_MAX);
        if (all.empty()) return {};
        for (const Strings* words : {&m_request.recipe.link, &m_request.private_names, &m_request.symbols})
            all += '\0' + shell_join(*words);
        return hash(all);
    }

    // Answers one question of `lazyck-unit`. Returns whether another question may follow.
    bool answer(int asker) noexcept {
        char question[64];
        if (recv(asker, question, sizeof question, 0) <= 0) return false;
        try {
            const Digest text = digest_of_text();
            m_text = text == Digest() ? EntryKey() : key_of_text(m_key, text);
            if (const UniqueFd entry = m_text.is_text ? m_request.find_text(m_text) : UniqueFd()) {
                const UniqueFd copy = open_at(m_staging.fd(), k_product, O_WRONLY | O_CREAT | O_TRUNC);
                if (!copy) fail_system("cannot write '" + m_staging.path() + "/blob.so'", errno);
                copy_library(entry.get(), copy.get());
                m_is_taken_over = true;
            }
        } catch (const std::exception& e) {
            say(Level::debug, std::string("not taken over: ") + e.what(), {"", m_request.subject});
            m_text = {};
        }
        return send(asker, m_is_taken_over ? "y" : "n", 1, MSG_NOSIGNAL) == 1;
    }

    Outcome run(const Strings& argv) {
        const std::string line = shell_join(argv);
        say(Level::debug, line, {"command", m_request.subject});
        write_all(m_log_fd.get(), "$ " + line + "\n");
        struct stat log_before = {};
        fstat(m_log_fd.get(), &log_before);
        m_output_at = static_cast<std::size_t>(log_before.st_size);
        Command command;
        command.argv = argv;
        command.environment = plan_environment(m_plan);
        command.directory = m_staging.fd();
        command.output = m_log_fd.get();
        command.timeout_seconds = m_request.timeout_seconds;
        command.started = m_request.started;
        command.beat = [&](double) {
            const double expected = m_request.expected_seconds;
            const double spent = seconds_since(m_start);
            say(Level::info,
                "still compiling " + m_request.subject.words + " (" + seconds_text(spent) +
                    (expected > 0 ? " of about " + seconds_text(expected) : "") + ")",
                {"compile_progress", m_request.subject, spent});
        };
        UniqueFd ours, theirs;
        int ends[2];
        if (asks(argv) && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
            ours = UniqueFd(ends[0]);
            theirs = UniqueFd(ends[1]);
            command.environment.emplace_back(LAZYCK_UNIT_ASKS "=1");
            command.input = theirs.get();
            command.question = ours.get();
            command.asked = [&] { return answer(ours.get()); };
        }
        const Outcome outcome = run_command(command);
        m_request.ended(outcome);
        return outcome;
    }

    void run_step(const char* name, const Strings& argv, const char* product) {
        if (argv.empty()) fail_here(std::string("its recipe has no ") + name + " step", "");
        const Outcome outcome = run(argv);
        const bool has_product = m_is_taken_over || is_file_in(m_staging.fd(), product);
        // An unknown ending is judged by the files that the command left; the checks before
        // publishing look into them.
        if (outcome.ending == Ending::succeeded && has_product) {
            const UniqueFd cost = open_at(m_staging.fd(), (std::string(product) + ".cost").c_str(), O_RDONLY);
            if (cost) m_request.told_cost(read_text(cost.get(), 0, k_longest_cost));
            return;
        }
        if (outcome.ending == Ending::unknown) m_is_end_known = false;
        if (outcome.ending == Ending::unknown && has_product) return;
        std::string reason = outcome.ending == Ending::succeeded ? std::string("it made no ") + product : outcome.text;
        if (outcome.has_timed_out) {
            reason = "it took longer than " + seconds_text(m_request.timeout_seconds) +
                     " (" LAZYCK_ENV_COMPILE_TIMEOUT ") and was killed";
        }
        const std::string output = read_text(m_log_fd.get(), m_output_at, k_longest_output);
        const bool can_log = write_all(m_log_fd.get(), "[" + std::string(name) + " step: " + reason + "]\n");
        const int log_error = can_log ? 0 : errno;  // the compiler's own error message is lost then, too
        if (!outcome.has_started) {
            const bool is_launcher = !m_request.values.launcher.empty() && argv[0] == m_request.values.launcher[0];
            fail_here(reason + (is_launcher
                                    ? "; it is the launcher that " LAZYCK_ENV_LAUNCHER
                                      " or --launcher names: install it, or do without"
                                    : "; install that compiler, or fill the cache ahead of time with `lazyck prebuild "
                                      "build`"),
                      "");
        }
        // The output of a killed compiler does not say why it was killed.
        if (outcome.has_timed_out || outcome.signal != 0)
            fail_here(reason, "", judge(end_of(outcome, output), log_error));
        const std::string first = with_own_path(first_error(output));
        const std::string advice = advice_on_arch(first, m_request.values.archs);
        fail_here(first, advice.empty() ? reason : advice, judge(end_of(outcome, output), log_error));
    }

    Verdict judge(const CommandEnd& end, int log_error) const {
        if (!is_directory(m_staging.path())) return {false, ENOENT};  // somebody emptied the cache
        if (log_error != 0) return {false, log_error};
        if (is_final(end)) return {true, 0};
        const int said = place_error_in(end.output);
        if (said == 0 && is_of_memory(end)) return {false, 0, true};
        return {false, said == 0 && is_full(m_staging.path()) ? ENOSPC : said};
    }

    // An ending that nobody saw counts as the compiler's own failure if the output says what is
    // wrong.
    static CommandEnd end_of(const Outcome& outcome, const std::string& output) {
        if (outcome.ending == Ending::unknown) return {output.find("error") != std::string::npos, 1, 0, output};
        if (outcome.has_timed_out) return {};
        return {outcome.signal == 0, outcome.exit_status, outcome.signal, output};
    }

    // Returns the line that tells a reader what is wrong. The driver's own complaint about its
    // linker does not.
    static std::string first_error(const std::string& output) {
        std::string last = "the compiler said nothing";
        for (const std::string& line : split(output, "\n")) {
            const auto has = [&](const char* text) { return line.find(text) != std::string::npos; };
            if (has("collect2: error") || has("linker command failed")) continue;
            if (has("error:") || has("error ") || has("Error") || has("undefined reference") ||
                has("undefined symbol")) {
                return line.substr(0, k_longest_error_line);
            }
            if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
        }
        return last.substr(0, k_longest_error_line);
    }

    // Returns a line of the compiler that begins with a file in the bundle, which it sees below a
    // link, with the file's own path.
    std::string with_own_path(const std::string& line) const {
        constexpr std::string_view k_link = LAZYCK_BUNDLE_LINK "/";
        return line.compare(0, k_link.size(), k_link) == 0 ? m_request.values.root + line.substr(k_link.size() - 1)
                                                           : line;
    }

    [[noreturn]] void fail_here(const std::string& reason, const std::string& detail, Verdict verdict = {}) {
        const std::string command = reproducer(m_plan, m_request.values.root);
        write_all(m_log_fd.get(), "[to reproduce: " + command + "]\n");
        keep_log();
        const std::string message = "lazyck: cannot compile blob '" + visible(m_request.subject.blob) + "' for " +
                                    m_request.subject.arch + ": " + reason +
                                    (detail.empty() ? "" : "\n  (" + detail + ")") + "\n  log: " + m_log +
                                    "\n  to reproduce: " + command;
        const FailureParts parts = {m_request.subject.blob, m_log, command};
        if (verdict.is_final) {
            fail<PermanentFailure>(message +
                                       "\n  later calls in this process will not try again, unless it calls"
                                       " lazyck_clear_failures()",
                                   parts);
        }
        if (verdict.is_of_memory) fail<OutOfMemory>(message, parts);
        if (verdict.place_error != 0) throw SystemFailure(message, parts, verdict.place_error);
        fail(message, parts);
    }

    void keep_log() const {
        try {
            publish(m_staging.fd(), "log", m_log);
        } catch (const CompileError&) {
            // A log that cannot be kept is no reason to fail.
        }
    }

    const CompileRequest& m_request;
    Cache& m_cache;
    const EntryKey& m_key;
    EntryKey m_text;  // of the text that is compiled, once `lazyck-unit` has told it
    bool m_is_taken_over = false;
    StagingDirectory m_staging;
    std::string m_entry, m_log;
    UniqueFd m_log_fd;
    std::size_t m_output_at = 0;  // where the output of the last command begins in the log
    CompilePlan m_plan;
    Clock::time_point m_start = Clock::now();
    bool m_is_end_known = true;
};

}  // namespace

Made compile_entry(const CompileRequest& request, Cache& cache, const EntryKey& key) {
    return Compilation(request, cache, key).run();
}

}  // namespace lazyck::rt
