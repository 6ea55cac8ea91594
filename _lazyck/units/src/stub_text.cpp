#include "stub_text.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "reach.h"
#include "source_text.h"

namespace lazyck::units {

namespace {

// Returns what leads to a kernel or to one of the `variables`, as far as names show it.
Reach that_lead_to_registrations(std::string_view text, const Definitions& found,
                                 const std::vector<std::string_view>& variables) {
    std::vector<std::string_view> names = variables;
    for (const Definition& d : found.functions) {
        if (d.is_kernel) names.push_back(d.name);
    }
    // Functions of the CUDA runtime that take a symbol count too.
    for (const Declared& d : found.all) {
        for (const std::string_view name : d.names) {
            if (!d.is_enum && name.substr(0, 4) == "cuda" && name.find("Symbol") != name.npos) names.push_back(name);
        }
    }
    return that_reach(text, found, std::move(names));
}

}  // namespace

StubSource::StubSource(std::string_view text, std::string_view source)
    : m_text(text), m_found(find_definitions(text, source)) {
    for (const Declared& d : m_found.all) {
        if (d.is_device_variable && d.is_template)
            m_instantiated.insert(m_instantiated.end(), d.names.begin(), d.names.end());
    }
}

std::string StubSource::text_for(StubText how_much) const {
    const std::string_view text = m_text;
    Definitions found = m_found;
    const auto is_stub = [](const Definition& d) { return d.is_kernel && !d.is_instantiation; };
    if (how_much == StubText::all) {
        return with_cuts(text, cuts_of(found.functions, [&](const Definition& d) { return is_stub(d) ? "{}" : ""; }));
    }
    const Reach reach = that_lead_to_registrations(text, found, m_instantiated);
    const auto index_of = [&](const Definition& d) { return static_cast<std::size_t>(&d - found.functions.data()); };
    // Device functions and templates stay defined. The compiler requires that for a static function
    // that is used, and for a template that is used with a local type.
    const auto without_body = [&](const Definition& d) -> std::string_view {
        if (!d.is_device && !d.is_template) return ";";
        return text[d.body] == '{' ? "{}" : "";
    };
    const auto replacement = [&](const Definition& d) -> std::string_view {
        if (is_stub(d)) return "{}";
        const bool is_of_device_alone = d.is_device && !d.is_host;
        return is_body_alone(d) && (is_of_device_alone || !reach.functions[index_of(d)]) ? without_body(d) : "";
    };
    widen(found.functions, [&](const Definition& d) { return replacement(d) == ";"; });
    std::vector<Cut> cuts = cuts_of(found.functions, replacement);
    if (how_much == StubText::lean) return with_cuts(text, cuts);

    std::vector<bool> roots(found.all.size());
    for (std::size_t i = 0; i < roots.size(); ++i) {
        const Declared& d = found.all[i];
        roots[i] = d.is_own || d.is_device_variable || (d.is_made && reach.declarations[i]);
    }
    for (const Definition& d : found.functions) {
        if (d.is_kernel && !d.is_template) roots[d.declaration] = true;
    }
    const Used used = used_by(text, found, cuts, roots, "");
    return with_cuts(text, cuts_to_used(text, found, used, replacement));
}

}  // namespace lazyck::units
