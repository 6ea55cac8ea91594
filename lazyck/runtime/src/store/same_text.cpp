#include "store/same_text.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "base/failure.h"
#include "base/hash.h"
#include "base/text.h"
#include "cache/texts.h"
#include "lazyck_abi.h"
#include "store/store.h"

namespace lazyck::rt {

bool SameText::is_asked_by(const Strings& argv) const {
    const Config& config = m_missing.store.config;
    if (!config.has_text_keys || !config.launcher.empty() || argv.size() < 2) return false;
    const std::string& verb = argv[1];
    return verb == LAZYCK_UNIT_KERNEL || verb == LAZYCK_UNIT_HIP_KERNEL || verb == LAZYCK_UNIT_ENTRY ||
           verb == LAZYCK_UNIT_HIP_TEXT;
}

// Returns the digest of the text that lazyck-unit left, and of the steps that follow here; zeros
// if it left none.
Digest SameText::digest_of_text(const StagingDirectory& staging) const {
    const char* const name = m_recipe.link.empty() ? "blob.so" LAZYCK_SUFFIX_TEXT : "blob.o" LAZYCK_SUFFIX_TEXT;
    std::string all = read_text(open_at(staging.fd(), name, O_RDONLY).get(), 0, SIZE_MAX);
    if (all.empty()) return {};
    // What is not linked here has no symbols that are renamed here.
    const Strings names = m_recipe.link.empty() ? Strings() : m_missing.at.manifest.private_names();
    for (const Strings& words : {m_recipe.link, names, m_missing.symbols}) all += '\0' + shell_join(words);
    return hash(all);
}

// Finds an entry of the text in a cache or a remote one. Returns it open, whole and with the
// symbols, or an empty descriptor.
UniqueFd SameText::find() {
    Store& store = m_missing.store;
    m_remote.reset();
    UniqueFd entry = store.find_text(m_missing.at.manifest, m_key, m_missing.symbols);
    if (entry || !store.config.has_remote) return entry;
    m_remote = std::make_unique<RemoteEntry>(m_missing, m_key, true);
    return m_remote->fetch();
}

bool SameText::answer(int asker, const StagingDirectory& staging, const char* product) noexcept {
    char question[64];
    if (recv(asker, question, sizeof question, 0) <= 0) return false;
    try {
        const Digest text = digest_of_text(staging);
        m_key = text == Digest() ? EntryKey() : key_of_text(m_missing.key, text);
        if (const UniqueFd entry = m_key.is_text ? find() : UniqueFd()) {
            const UniqueFd copy = open_at(staging.fd(), product, O_WRONLY | O_CREAT | O_TRUNC);
            if (!copy) fail_system("cannot write '" + staging.path() + "/" + product + "'", errno);
            copy_library(entry.get(), copy.get());
            m_is_taken_over = true;
        }
    } catch (const std::exception& e) {
        log_message(Level::debug, std::string("not taken over: ") + e.what(), {"", m_missing.subject});
        m_key = {};
    }
    return send(asker, m_is_taken_over ? "y" : "n", 1, MSG_NOSIGNAL) == 1;
}

void SameText::keep() const {
    if (m_key.is_text) keep_text(m_missing.cache, m_key, m_missing.key);
}

void SameText::give_to_remotes() {
    if (m_remote && !m_is_taken_over) m_remote->made();
}

}  // namespace lazyck::rt
