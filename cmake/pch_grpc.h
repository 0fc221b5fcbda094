// The precompiled header of everything above gRPC: pch.h, the library and the generated contract.
#pragma once

#include <grpcpp/grpcpp.h>

#include "cmake/pch.h"
#include "kvkeep/v1/kvkeep.grpc.pb.h"
