// The functions of LibTorch's fmt, compiled once: as a header-only library they cost each object file 5 s of -O3.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
namespace detail {
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API void buffer<char>::append(const char*, const char*);
}  // namespace detail
FMT_END_NAMESPACE
