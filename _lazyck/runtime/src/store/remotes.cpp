#include "store/remotes.h"

#include "base/numbers.h"
#include "store/estimate.h"

namespace lazyck::rt {

RemoteRequest Remotes::request_for(const Missing& missing) const {
    RemoteRequest request;
    request.helper = m_config.remote_helper;
    request.subject = missing.subject;
    request.longest_wait = patience(m_config, missing.guess);
    return request;
}

std::unique_ptr<RemoteEntry> Remotes::ask(const Missing& missing, const EntryKey& key, bool may_compile) {
    if (!m_config.has_remote) return nullptr;
    RemoteRequest request = request_for(missing);
    request.may_compile = may_compile && !m_jit.is_forbidden();
    return std::make_unique<RemoteEntry>(request, missing.cache, key, m_counters.remote);
}

UniqueFd Remotes::compile(const Missing& missing, std::string& origin, std::string& problem) {
    RemoteRequest request = request_for(missing);
    Strings& words = request.to_compile;
    words = {"--from", m_places.library, "--expect", decimal(missing.guess.blob.seconds, 0)};
    if (missing.manifest.has_arch_flags(missing.blob.recipe)) {
        for (const std::string& arch : missing.key.archs) words.insert(words.end(), {"--arch", arch});
    }
    words.insert(words.end(), {"--", missing.blob.name});
    RemoteEntry service(request, missing.cache, missing.key, m_counters.remote);
    UniqueFd made = service.fetch(missing.symbols);
    origin = "remote " + service.label();
    problem = made ? "" : service.problem();
    return made;
}

}  // namespace lazyck::rt
