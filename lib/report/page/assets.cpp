#include "lib/report/page/assets.h"

// The assembler reads each file; CMakeLists.txt gives their paths.
#define SCATTERLM_ASSET(name, path)                                         \
  asm(".pushsection .rodata\n" #name "_begin: .incbin \"" path "\"\n" #name \
      "_end: .byte 0\n.popsection\n"                                        \
      ".global " #name "_begin\n.global " #name "_end\n");                  \
  extern "C" const char name##_begin[], name##_end[];                       \
  std::string_view scatterlm::page::name() { return {name##_begin, static_cast<size_t>(name##_end - name##_begin)}; }

SCATTERLM_ASSET(html, SCATTERLM_PAGE "/page.html")
SCATTERLM_ASSET(css, SCATTERLM_PAGE "/page.css")
SCATTERLM_ASSET(js, SCATTERLM_PAGE "/page.js")
SCATTERLM_ASSET(plotly, SCATTERLM_PLOTLY)
