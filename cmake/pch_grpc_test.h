// The precompiled header of tests of what is above gRPC: pch_grpc.h and Catch2.
#pragma once

#include <catch2/catch.hpp>

#include "cmake/pch_grpc.h"
