// Catch2 version 2 (Debian 12, Ubuntu 22.04) or 3 (Ubuntu 24.04). Include last: its CHECK replaces LibTorch's.
#pragma once
#undef CHECK
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif
