#include "kernel_text.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "reach.h"
#include "source_text.h"

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

}  // namespace

bool can_be_asked_for(const Kernel& kernel) {
    for (const char* const mark : {"__nv_dl_", "lambda", "unnamed", "__nv_hdl_"}) {
        if (kernel.spelling.find(mark) != std::string::npos) return false;
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
    const Used used = used_by(text, found, cuts, roots, request);
    return with_cuts(text, cuts_to_used(text, found, used, replacement)) + request;
}

}  // namespace lazyck::units
