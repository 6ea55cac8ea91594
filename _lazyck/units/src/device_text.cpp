#include "device_text.h"

#include <algorithm>
#include <cstddef>

#include "reach.h"
#include "text.h"

namespace lazyck::units {

namespace {

// Returns the last name in a spelling such as `ns::kernel<float, 3>`.
std::string_view plain_name(std::string_view spelling) {
    std::size_t end = std::min(spelling.find('<'), spelling.size());
    // `ns<int>::kernel<3>` has several names. The last one outside of brackets counts.
    int depth = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < spelling.size(); ++i) {
        const char c = spelling[i];
        if (depth == 0 && c == ':') {
            begin = i + 1;
            end = spelling.size();
        }
        if (depth == 0 && c == '<') end = std::min(end, i);
        depth += c == '<' || c == '(' ? 1 : c == '>' || c == ')' ? -1 : 0;
    }
    return begin <= end ? spelling.substr(begin, end - begin) : spelling;
}

std::string request_for(const Kernel& kernel) {
    std::string spelling = kernel.spelling;
    constexpr std::string_view k_anonymous = "_NV_ANON_NAMESPACE::";
    for (std::size_t at; (at = spelling.find(k_anonymous)) != std::string::npos;)
        spelling.erase(at, k_anonymous.size());
    const std::string cast = kernel.type.empty() ? "" : "static_cast<" + kernel.type + ">";
    return "\nvoid* lazyck_wanted() { return (void*)" + cast + "(" + (cast.empty() ? "" : "&") + spelling + "); }\n";
}

// Returns what leads to a kernel or to one of the `variables`, as far as names show it.
Parts that_lead_to_registrations(std::string_view text, const Definitions& found,
                                 const std::vector<std::string_view>& variables) {
    std::vector<std::string_view> names = variables;
    for (const Definition& d : found.functions) {
        if (d.is_kernel) names.push_back(d.name);
    }
    // Functions of the CUDA runtime that take a symbol count too.
    for (const Declared& d : found.all) {
        for (const std::string_view name : d.names) {
            if (!d.is_enum && begins_with(name, "cuda") && contains(name, "Symbol")) names.push_back(name);
        }
    }
    return that_reach(text, found, std::move(names));
}

}  // namespace

bool can_be_asked_for(const Kernel& kernel) {
    for (const char* const mark : {"__nv_dl_", "lambda", "unnamed", "__nv_hdl_"}) {
        if (contains(kernel.spelling, mark)) return false;
    }
    return !kernel.spelling.empty();
}

std::string text_for_kernel(const Kernel& kernel, const std::string& text, const std::string& source,
                            KernelText how_much) {
    const std::string_view name = plain_name(kernel.spelling);
    Definitions found = find_definitions(text, source);
    const bool is_named = how_much != KernelText::own;
    const auto is_taken_out = [&](const Definition& d) {
        // Templates in headers cost little while nobody uses them. In `used`, what they mention
        // would be kept as well.
        const bool costs = d.is_own || !d.is_template || how_much == KernelText::used;
        return is_named && is_body_alone(d) && !d.is_device && costs;
    };
    widen(found.functions, is_taken_out);
    // A host function keeps its declaration, so that the compiler reports it if device code needs
    // it after all. Instances are made of what is asked for. The source's own instances of host
    // functions and classes launch kernels that nobody wants here, and an `extern` one would make
    // the kernel itself come from elsewhere.
    const auto replacement = [&](const Definition& d) -> std::string_view {
        if (d.is_instantiation) {
            // An instantiation of a kernel may carry its launch bounds.
            const bool has_bounds = d.is_kernel && d.has_attributes;
            const bool is_left_out = !has_bounds && (d.is_kernel || d.name == name || (d.is_own && !d.is_device));
            return is_named && is_left_out ? ";" : "";
        }
        if (d.is_kernel) return d.name == name ? "" : "{}";
        return is_taken_out(d) ? ";" : "";
    };
    const std::vector<Cut> cuts = cuts_of(found.functions, replacement);
    if (how_much == KernelText::own) return with_cuts(text, cuts);
    const std::string request = request_for(kernel);
    if (how_much == KernelText::named) return with_cuts(text, cuts) + request;
    // What is mentioned anywhere is kept with its body. One body too few would make other code; one
    // too many only costs time.
    const std::vector<bool> roots(found.all.size());
    const Parts used = used_by(text, found, cuts, roots, request);
    return with_cuts(text, cuts_to_used(text, found, used, replacement)) + request;
}

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
    const Parts reach = that_lead_to_registrations(text, found, m_instantiated);
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
    const Parts used = used_by(text, found, cuts, roots, "");
    return with_cuts(text, cuts_to_used(text, found, used, replacement));
}

}  // namespace lazyck::units
