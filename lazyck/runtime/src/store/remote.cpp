#include "store/remote.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/failure.h"
#include "base/text.h"
#include "cache/entry.h"
#include "lazyck_abi.h"
#include "platform/messages.h"
#include "platform/process.h"

namespace lazyck::rt {

namespace {

constexpr double k_start_seconds = 60;          // until the helper is ready; Python may be on a slow disk
constexpr int k_silence_ms = 300 * 1000;        // the helper bounds its own work, and reports while it waits
constexpr std::size_t k_longest_answer = 4096;  // bytes
constexpr std::size_t k_most_lines = 100'000;   // before an answer
constexpr unsigned k_most_bad = 16;             // hits that turn out not to be valid entries
constexpr const char k_fetched[] = LAZYCK_FETCHED_FILE;
constexpr const char k_compiler_log[] = LAZYCK_COMPILER_LOG_FILE;

// Returns whether `line` begins with `word` and a blank, and sets `rest` to what follows.
bool begins(const std::string& line, const char* word, std::string& rest) {
    const std::string lead = std::string(word) + " ";
    if (line.compare(0, lead.size(), lead) != 0) return false;
    rest = line.substr(lead.size());
    return true;
}

// Returns this process's environment, in which the helper finds its settings and the user's
// credentials, for messages in English and programs of absolute paths.
Strings helper_environment() {
    Strings out = {"PATH=" + search_path(environment("PATH")), "LC_ALL=C"};
    // The program may have a Python of its own.
    const Strings dropped = {"PATH", "LC_ALL", "PYTHONHOME"};
    for (const std::string& variable : whole_environment()) {
        if (std::find(dropped.begin(), dropped.end(), variable.substr(0, variable.find('='))) == dropped.end())
            out.push_back(variable);
    }
    return out;
}

}  // namespace

RemoteEntry::RemoteEntry(const Missing& missing, const EntryKey& key, bool may_compile, Strings to_compile)
    : m_missing(missing),
      m_key(key),
      m_to_compile(std::move(to_compile)),
      m_staging(missing.cache.staging_prefix(key)) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        give_up(system_text(errno));
        return;
    }
    m_socket = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    const UniqueFd log = open_at(m_staging.fd(), "log", O_RDWR | O_CREAT | O_APPEND);
    Command command;
    command.argv = {missing.store.config.remote_helper,
                    m_to_compile.empty() ? LAZYCK_REMOTE_ENTRY : LAZYCK_REMOTE_COMPILE,
                    LAZYCK_OPTION_KEY,
                    key.id().hex(),
                    LAZYCK_OPTION_NAME,
                    Cache::entry_name(key),
                    LAZYCK_OPTION_CACHE,
                    missing.cache.root(),
                    LAZYCK_OPTION_WAIT,
                    decimal(patience(missing.store.config, missing.guess), 0)};
    if (!may_compile) command.argv.emplace_back(LAZYCK_OPTION_ONLY_FETCH);
    command.argv.insert(command.argv.end(), m_to_compile.begin(), m_to_compile.end());
    command.environment = helper_environment();
    command.directory = m_staging.fd();
    command.input = theirs.get();
    command.output = log.get();
    command.timeout_seconds = k_start_seconds;
    // The helper leaves a process of its own that serves the socket: it may have something to send
    // long after this process has ended.
    const Outcome outcome = run_command(command);
    if (outcome.ending == Ending::succeeded || outcome.ending == Ending::unknown) return;
    const std::string said = read_text(log.get(), 0, k_longest_answer);
    give_up(!outcome.is_missing
                ? outcome.text + (said.empty() ? "" : ": " + said.substr(0, said.find('\n')))
                : outcome.text + "; install it (pip install 'lazyck[" + (m_to_compile.empty() ? "remote" : "reapi") +
                      "]')" + ", or name it with " LAZYCK_ENV_REMOTE_HELPER);
}

// Ends the conversation: from here on, the look-up is a miss. Returns false.
bool RemoteEntry::give_up(const std::string& reason) {
    m_socket = UniqueFd();
    ++m_missing.store.counters.remote_skipped;
    m_problem = m_missing.store.config.remote_helper + ": " + reason;
    log_once("remote " + reason,
             std::string(m_to_compile.empty() ? "the remote caches (" LAZYCK_ENV_REMOTE ") are"
                                              : "the compile service (" LAZYCK_ENV_REMOTE_COMPILE ") is") +
                 " not asked for " + m_missing.subject.words + ": " + m_problem,
             {"", m_missing.subject});
    return false;
}

// Reads a line, without its newline. Returns false if the conversation is over.
bool RemoteEntry::read_line(std::string& line) {
    while (m_socket) {
        const std::size_t end = m_read.find('\n');
        if (end != std::string::npos) {
            line = m_read.substr(0, end);
            m_read.erase(0, end + 1);
            return true;
        }
        if (m_read.size() >= k_longest_answer) return give_up("it sent a line that is too long");
        pollfd wanted = {m_socket.get(), POLLIN, 0};
        const int ready = poll(&wanted, 1, k_silence_ms);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return give_up(ready == 0 ? "it sent nothing for five minutes" : system_text(errno));
        char buffer[1024];
        const ssize_t size = recv(m_socket.get(), buffer, sizeof buffer, 0);
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) return give_up("it ended without an answer");
        m_read.append(buffer, static_cast<std::size_t>(size));
    }
    return false;
}

void RemoteEntry::send(const std::string& line) {
    const std::string text = line + "\n";
    // It is no error if the helper has gone. Its SIGPIPE would hit the program.
    if (m_socket) ::send(m_socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

// Reads what the helper says until an answer, and returns whether a remote has the entry.
bool RemoteEntry::is_hit() {
    std::string line, text;
    for (std::size_t lines = 0; read_line(line); ++lines) {
        if (line == LAZYCK_LINE_COMPILE || line == LAZYCK_LINE_MISS) return false;
        if (begins(line, LAZYCK_LINE_HIT, text)) {
            m_label = text.substr(0, text.rfind(' '));
            return true;
        }
        if (begins(line, LAZYCK_LINE_FAILED " " LAZYCK_FAILED_FINAL, text)) fail_there(text, true);
        if (begins(line, LAZYCK_LINE_FAILED " " LAZYCK_FAILED_PASSING, text)) fail_there(text, false);
        if (begins(line, LAZYCK_LINE_FAILED, text)) fail_there("", false);
        if (begins(line, LAZYCK_LINE_REFUSED, text)) {
            ++m_missing.store.counters.remote_refused;
            log_message(Level::warn, text, {"", m_missing.subject});
        } else if (begins(line, LAZYCK_LINE_SKIPPED, text)) {
            ++m_missing.store.counters.remote_skipped;
            m_problem = text;
            log_once("remote " + text, text, {"", m_missing.subject});
        } else if (begins(line, LAZYCK_LINE_NOTE " " LAZYCK_NOTE_INFO, text)) {
            log_message(Level::info, text, {"", m_missing.subject});
        } else if (begins(line, LAZYCK_LINE_NOTE " " LAZYCK_NOTE_WARN, text)) {
            log_once("remote " + text, text, {"", m_missing.subject});
        } else if (begins(line, LAZYCK_LINE_PID, text)) {
            std::string_view number = text;
            end_orphan(static_cast<pid_t>(take_integer(number).value_or(0)));
        } else {
            give_up("it sent '" + visible(line) + "'");
        }
        if (lines == k_most_lines) give_up("it sent too much");
    }
    return false;
}

// Keeps the remote compiler's output as the entry's log, or else the line `otherwise`, if there is
// one.
void RemoteEntry::keep_log(const std::string& otherwise) {
    if (is_file_in(m_staging.fd(), k_compiler_log)) {
        publish(m_staging.fd(), k_compiler_log, m_missing.cache.log_path(m_key));
        return;
    }
    const UniqueFd log = open_at(m_staging.fd(), "log", O_WRONLY | O_APPEND);
    if (!otherwise.empty() && log && write_all(log.get(), otherwise))
        publish(m_staging.fd(), "log", m_missing.cache.log_path(m_key));
}

void RemoteEntry::fail_there(const std::string& reason, bool is_final) {
    keep_log("");
    m_missing.fail(visible(reason) + "\n  (by the compile service that " LAZYCK_ENV_REMOTE_COMPILE " names)",
                   {is_final});
}

UniqueFd RemoteEntry::fetch() {
    for (unsigned bad = 0; is_hit(); ++bad) {
        UniqueFd file = open_at(m_staging.fd(), k_fetched, O_RDWR);
        const std::string fault = file ? find_entry_fault(file.get(), m_key, m_missing.symbols) : system_text(errno);
        if (fault.empty()) {
            struct stat st;
            const bool is_ours = fstat(file.get(), &st) == 0 && fchmod(file.get(), (st.st_mode & 0755) | 0600) == 0;
            if (!is_ours || fsync(file.get()) != 0) fail_system("cannot keep what was fetched", errno);
            const std::string path = m_missing.cache.entry_path(m_key);
            ++m_missing.store.counters.remote_hits;
            if (!m_key.is_text) {
                keep_log("[fetched from " + visible(m_label) + "]\n");
                publish(m_staging.fd(), k_fetched, path);
            }
            send(LAZYCK_LINE_KEPT " " + path);
            return file;
        }
        ++m_missing.store.counters.remote_refused;
        log_message(Level::warn, "what " + m_label + " has for " + m_missing.subject.words + " is refused: " + fault,
                    {"", m_missing.subject});
        send(LAZYCK_LINE_BAD " " + fault.substr(0, k_longest_answer / 2));
        m_problem = m_label + ": what it made is refused: " + fault;
        if (bad == k_most_bad) give_up("it keeps offering bad entries");
    }
    return UniqueFd();
}

UniqueFd compile_at_service(const Missing& missing, std::string& origin, std::string& problem) {
    Strings words = {LAZYCK_OPTION_FROM, missing.store.paths.library, LAZYCK_OPTION_EXPECT,
                     decimal(missing.guess.blob.seconds, 0)};
    if (missing.at.manifest.has_arch_flags(missing.blob.recipe)) {
        for (const std::string& arch : missing.key.archs) words.insert(words.end(), {LAZYCK_OPTION_ARCH, arch});
    }
    words.insert(words.end(), {"--", missing.blob.name});
    RemoteEntry service(missing, missing.key, true, words);
    UniqueFd made = service.fetch();
    origin = service.origin();
    problem = made ? "" : service.problem();
    return made;
}

}  // namespace lazyck::rt
