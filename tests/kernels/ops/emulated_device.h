// What tests tell the emulated GPU of emulated_device.cpp.
#pragma once

struct CUstream_st;

namespace scatterlm::ops {

/// From now on ops are called on this stream, of which only the address counts; nullptr is the default stream.
void set_current_stream(CUstream_st* stream);

}  // namespace scatterlm::ops
