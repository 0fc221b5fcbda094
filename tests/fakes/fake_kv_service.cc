#include "tests/fakes/fake_kv_service.h"

#include <absl/strings/str_cat.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <filesystem>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/key.h"
#include "tiers/base/units.h"

namespace kvkeep::fakes {
namespace {

// A synchronous handler can only ask whether its call was cancelled, so it polls.
void Pause() {
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  never.WaitFor(&mu, std::chrono::milliseconds(2));
}

void Hang(grpc::ServerContext* context, const std::atomic<bool>& hang) {
  while (hang && !context->IsCancelled()) Pause();
}

std::vector<std::string> Unpack(const std::string& keys) {
  std::vector<std::string> unpacked;
  for (size_t at = 0; at < keys.size(); at += ChunkKey::kSize) {
    unpacked.push_back(keys.substr(at, ChunkKey::kSize));
  }
  return unpacked;
}

grpc::Status Stale(const char* what) { return {grpc::StatusCode::FAILED_PRECONDITION, what}; }

}  // namespace

size_t FakeKvService::chunks() const {
  MutexLock lock(&mu_);
  return chunks_.size();
}
size_t FakeKvService::leases() const {
  MutexLock lock(&mu_);
  return leases_.size();
}
std::string FakeKvService::last_parent_key() const {
  MutexLock lock(&mu_);
  return last_parent_key_;
}
void FakeKvService::NewIncarnation() {
  MutexLock lock(&mu_);
  ++incarnation_;
  sessions_.clear();
  opened_.clear();
  leases_.clear();
  next_id_ = 1;  // lease ids repeat: a client must not take an old lease for a new one
}
void FakeKvService::ClearChunks() {
  MutexLock lock(&mu_);
  chunks_.clear();
}

grpc::Status FakeKvService::CheckSession(const std::string& token,
                                         const std::string& digest) const {
  const bool is_open = !script.forget_sessions && sessions_.contains(token);
  if (!is_open) return Stale("session_token is not of an open session");
  if (!digest.empty() && !opened_.contains({token, digest})) return Stale("namespace");
  return grpc::Status::OK;
}

std::vector<uint32_t> FakeKvService::PartsOf(
    const std::string& digest, const google::protobuf::RepeatedField<uint32_t>& asked) const {
  std::vector<uint32_t> parts(asked.begin(), asked.end());
  if (!parts.empty()) return parts;
  for (uint32_t part = 0; part < parts_.at(digest); ++part) parts.push_back(part);
  return parts;
}

grpc::Status FakeKvService::GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* response) {
  MutexLock lock(&mu_);
  response->set_version("fake");
  response->set_incarnation(incarnation_);
  response->set_state(v1::SERVING_STATE_SERVING);
  response->add_features("grpc");
  response->mutable_limits()->set_max_keys_per_call(65'536);
  return grpc::Status::OK;
}

grpc::Status FakeKvService::OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest*,
                                        grpc::ServerWriter<v1::SessionEvent>* writer) {
  v1::SessionEvent event;
  {
    MutexLock lock(&mu_);
    ++sessions_opened;
    const std::string token = absl::StrCat("token-", incarnation_, "-", sessions_opened.load());
    event.set_session_token((token + std::string(16, '.')).substr(0, 16));
    event.set_incarnation(incarnation_);
    event.mutable_limits()->set_max_keys_per_call(65'536);
    event.mutable_limits()->set_max_frame_bytes(script.max_frame_bytes);
    sessions_.insert(event.session_token());
  }
  if (!script.hang_session) writer->Write(event);
  while (!context->IsCancelled() && !end_sessions_) Pause();
  MutexLock lock(&mu_);
  sessions_.erase(event.session_token());
  return {grpc::StatusCode::UNAVAILABLE, "the fake daemon stops"};
}

grpc::Status FakeKvService::OpenNamespace(grpc::ServerContext*,
                                          const v1::OpenNamespaceRequest* request,
                                          v1::OpenNamespaceResponse* response) {
  MutexLock lock(&mu_);
  if (auto bad = CheckSession(request->session_token(), ""); !bad.ok()) return bad;
  if (request->model() == "refused") {
    return {grpc::StatusCode::INVALID_ARGUMENT, "model: refused by the fake"};
  }
  v1::OpenNamespaceRequest declaration = *request;
  declaration.clear_session_token();
  const Digest128 digest = Xxh3_128(AsBytes(declaration.SerializeAsString()));
  response->mutable_namespace_digest()->assign(reinterpret_cast<const char*>(&digest), 16);
  opened_.insert({request->session_token(), response->namespace_digest()});
  parts_[response->namespace_digest()] = request->parts();
  ++namespaces_opened;
  return grpc::Status::OK;
}

grpc::Status FakeKvService::Lookup(grpc::ServerContext* context, const v1::LookupRequest* request,
                                   v1::LookupResponse* response) {
  ++lookups;
  Hang(context, script.hang_lookup);
  MutexLock lock(&mu_);
  if (auto bad = CheckSession(request->session_token(), request->namespace_digest()); !bad.ok()) {
    return bad;
  }
  const std::vector<std::string> keys = Unpack(request->keys());
  const std::vector<uint32_t> parts = PartsOf(request->namespace_digest(), request->parts());
  const size_t row = (parts.size() + 7) / 8;
  std::string present(keys.size() * row, '\0');
  bool leading = true;
  for (size_t k = 0; k < keys.size(); ++k) {
    size_t found = 0;
    for (size_t p = 0; p < parts.size(); ++p) {
      if (!chunks_.contains({request->namespace_digest(), keys[k], parts[p]})) continue;
      present[k * row + p / 8] = static_cast<char>(present[k * row + p / 8] | 1 << p % 8);
      ++found;
    }
    leading = leading && found == parts.size();
    if (leading) response->set_leading_keys(response->leading_keys() + 1);
  }
  uint32_t leased = response->leading_keys();
  if (script.in_g4) {
    response->clear_leading_keys();
    if (request->remote_wait_us() == 0) leased = 0, present.clear();
    response->set_remote_keys(leased);
    response->mutable_remote_parts()->swap(present);
  } else {
    (script.in_g3 ? response->mutable_g3_parts() : response->mutable_g2_parts())->swap(present);
  }
  response->mutable_g2_parts()->resize(keys.size() * row);
  response->mutable_g3_parts()->resize(keys.size() * row);
  if (request->lease_mode() == v1::LEASE_MODE_ALL_PRESENT) leased = keys.size();
  leased = std::min(leased, script.max_leased_keys.load());
  if (request->lease_mode() == v1::LEASE_MODE_NONE || leased == 0) return grpc::Status::OK;
  for (const auto& [id, lease] : leases_) {
    if (lease.request_id == request->client_request_id()) response->set_lease_id(id);
  }
  if (response->lease_id() == 0) response->set_lease_id(next_id_++);
  leases_[response->lease_id()] = {{keys.begin(), keys.begin() + leased},
                                   request->client_request_id()};
  response->set_leased_keys(leased);
  return grpc::Status::OK;
}

grpc::Status FakeKvService::Get(grpc::ServerContext* context, const v1::GetRequest* request,
                                grpc::ServerWriter<v1::GetFrame>* writer) {
  ++gets;
  Hang(context, script.hang_get);
  const std::vector<std::string> keys = Unpack(request->keys());
  std::vector<uint32_t> parts;
  {
    MutexLock lock(&mu_);
    if (auto bad = CheckSession(request->session_token(), request->namespace_digest()); !bad.ok()) {
      return bad;
    }
    parts = PartsOf(request->namespace_digest(), request->parts());
    if (request->lease_id() != 0) {
      auto lease = leases_.find(request->lease_id());
      if (lease == leases_.end()) return Stale("lease");
      for (size_t k = 0; k < keys.size(); ++k) {
        const size_t at = request->first_key() + k;
        if (at >= lease->second.keys.size() || lease->second.keys[at] != keys[k]) {
          return {grpc::StatusCode::FAILED_PRECONDITION, "keys: not those of the lease"};
        }
      }
    }
  }
  int frames = 0;
  for (size_t k = 0; k < keys.size(); ++k) {
    for (size_t p = 0; p < parts.size(); ++p) {
      v1::GetFrame frame;
      frame.set_key_index(k);
      frame.set_part_index(p);
      Chunk chunk;
      bool found = !script.in_g4 || request->lease_id() + request->remote_wait_us() > 0;
      {
        MutexLock lock(&mu_);
        auto it = chunks_.find({request->namespace_digest(), keys[k], parts[p]});
        found = found && it != chunks_.end();
        if (found) chunk = it->second;
      }
      frame.set_status(found ? v1::CHUNK_STATUS_HIT : v1::CHUNK_STATUS_MISS);
      if (!found) {
        frame.set_last(true);
        writer->Write(frame);
      } else if (!SendChunk(*request, std::move(frame), chunk, &frames, writer)) {
        return {static_cast<grpc::StatusCode>(script.end_get_code.load()), "ended on order"};
      }
    }
  }
  return grpc::Status::OK;
}

bool FakeKvService::SendChunk(const v1::GetRequest& request, v1::GetFrame frame, const Chunk& chunk,
                              int* frames, grpc::ServerWriter<v1::GetFrame>* writer) {
  constexpr size_t kFrame = 4 * kMiB;
  const size_t begin = std::min<size_t>(request.first_piece() * kPieceBytes, chunk.payload.size());
  size_t end = chunk.payload.size();
  if (request.pieces() > 0) end = std::min<size_t>(end, begin + request.pieces() * kPieceBytes);
  frame.set_payload_bytes(chunk.payload.size());
  const bool corrupt = script.corrupt_gets > 0 && script.corrupt_gets-- > 0;
  for (size_t at = begin; at < end; at += kFrame) {
    if (script.end_get_after >= 0 && *frames >= script.end_get_after) return false;
    ++*frames;
    const size_t size = std::min(kFrame, end - at);
    frame.set_payload(chunk.payload.substr(at, size));
    if (script.wrong_bytes) (*frame.mutable_payload())[size / 2] ^= 0x10;
    frame.clear_piece_checksums();
    for (size_t piece = 0; piece < size; piece += kPieceBytes) {
      frame.add_piece_checksums(Xxh3(
          AsBytes(frame.payload()).subspan(piece, std::min<size_t>(kPieceBytes, size - piece))));
    }
    if (corrupt) (*frame.mutable_payload())[size / 2] ^= 0x10;
    frame.set_offset(at + (script.skip_part_of_frame ? kPieceBytes : 0));
    frame.set_last(at + size == end);
    if (frame.last() && request.metadata()) frame.set_metadata(chunk.metadata);
    writer->Write(frame);
    if (script.corrupt_midway > 0 && !frame.last()) {
      --script.corrupt_midway;
      v1::GetFrame bad;
      bad.set_key_index(frame.key_index());
      bad.set_part_index(frame.part_index());
      bad.set_status(v1::CHUNK_STATUS_CORRUPT);
      bad.set_last(true);
      writer->Write(bad);
      return true;
    }
  }
  return true;
}

v1::PutResult FakeKvService::Store(const std::string& digest, const v1::PutChunkHeader& header,
                                   std::string payload) {
  v1::PutResult result;
  MutexLock lock(&mu_);
  last_parent_key_ = header.hints().parent_key();
  const Id id{digest, header.key(), header.part()};
  if (script.reject_puts) {
    result.set_status(v1::PUT_STATUS_REJECTED);
    result.set_reason(v1::REJECT_REASON_NO_SPACE);
    result.set_message("the fake is full");
  } else if (header.has_checksum() && header.checksum() != Xxh3(AsBytes(payload))) {
    result.set_status(v1::PUT_STATUS_REJECTED);
    result.set_reason(v1::REJECT_REASON_WRONG_CHECKSUM);
  } else if (chunks_.contains(id)) {
    result.set_status(v1::PUT_STATUS_PRESENT);
  } else {
    chunks_[id] = {std::move(payload), header.metadata()};
    result.set_status(v1::PUT_STATUS_STORED);
  }
  return result;
}

grpc::Status FakeKvService::Put(grpc::ServerContext* context,
                                grpc::ServerReaderWriter<v1::PutResult, v1::PutFrame>* stream) {
  ++put_streams;
  Hang(context, script.hang_put);
  v1::PutFrame frame;
  v1::PutStreamHeader header;
  v1::PutChunkHeader chunk;
  std::string payload;
  uint32_t ordinal = 0;
  for (bool first = true; stream->Read(&frame); first = false) {
    if (first) {
      header = frame.stream();
      MutexLock lock(&mu_);
      if (auto bad = CheckSession(header.session_token(), header.namespace_digest()); !bad.ok()) {
        return bad;
      }
    }
    if (frame.has_chunk()) chunk = frame.chunk();
    if (frame.payload().size() > script.max_frame_bytes) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "payload: over max_frame_bytes"};
    }
    payload += frame.payload();
    if (payload.size() > chunk.payload_bytes()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "payload: more than payload_bytes"};
    }
    if (payload.size() < chunk.payload_bytes()) continue;
    v1::PutResult result = Store(header.namespace_digest(), chunk, std::move(payload));
    result.set_ordinal(ordinal++);
    stream->Write(result);
    payload.clear();
  }
  return grpc::Status::OK;
}

size_t FakeKvService::CountPresent(const std::string& digest, const std::string& keys,
                                   const google::protobuf::RepeatedField<uint32_t>& parts) const {
  size_t present = 0;
  for (const std::string& key : Unpack(keys)) {
    for (uint32_t part : PartsOf(digest, parts)) present += chunks_.contains({digest, key, part});
  }
  return present;
}

grpc::Status FakeKvService::Touch(grpc::ServerContext*, const v1::TouchRequest* request,
                                  v1::TouchResponse* response) {
  MutexLock lock(&mu_);
  if (auto bad = CheckSession(request->session_token(), request->namespace_digest()); !bad.ok()) {
    return bad;
  }
  response->set_touched_chunks(
      CountPresent(request->namespace_digest(), request->keys(), request->parts()));
  return grpc::Status::OK;
}

grpc::Status FakeKvService::Prefetch(grpc::ServerContext*, const v1::PrefetchRequest* request,
                                     v1::PrefetchResponse* response) {
  MutexLock lock(&mu_);
  if (auto bad = CheckSession(request->session_token(), request->namespace_digest()); !bad.ok()) {
    return bad;
  }
  response->set_ready_chunks(
      CountPresent(request->namespace_digest(), request->keys(), request->parts()));
  return grpc::Status::OK;
}

grpc::Status FakeKvService::Release(grpc::ServerContext*, const v1::ReleaseRequest* request,
                                    v1::ReleaseResponse*) {
  ++releases;
  MutexLock lock(&mu_);
  auto lease = leases_.find(request->lease_id());
  if (lease == leases_.end()) return Stale("lease");
  if (request->keep_keys() == 0) {
    leases_.erase(lease);
  } else {
    lease->second.keys.resize(std::min<size_t>(lease->second.keys.size(), request->keep_keys()));
  }
  return grpc::Status::OK;
}

grpc::Status FakeKvService::Delete(grpc::ServerContext*, const v1::DeleteRequest* request,
                                   v1::DeleteResponse* response) {
  MutexLock lock(&mu_);
  if (auto bad = CheckSession(request->session_token(), request->namespace_digest()); !bad.ok()) {
    return bad;
  }
  size_t deleted = 0;
  for (const std::string& key : Unpack(request->keys())) {
    for (uint32_t part : PartsOf(request->namespace_digest(), request->parts())) {
      deleted += chunks_.erase({request->namespace_digest(), key, part});
    }
  }
  response->set_deleted_chunks(deleted);
  return grpc::Status::OK;
}

void FakeKvService::OnWatch(WatchHandler handler) {
  MutexLock lock(&mu_);
  on_watch_ = std::move(handler);
}

grpc::Status FakeKvService::Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                                  grpc::ServerWriter<v1::WatchEvents>* writer) {
  WatchHandler handler;
  {
    MutexLock lock(&mu_);
    if (auto bad = CheckSession(request->session_token(), request->namespace_digest()); !bad.ok()) {
      return bad;
    }
    handler = on_watch_;
  }
  if (!handler) return {grpc::StatusCode::UNIMPLEMENTED, "the fake has no watch"};
  if (grpc::Status status = handler(context, writer); !status.ok()) return status;
  while (!context->IsCancelled() && !end_sessions_) Pause();
  return {grpc::StatusCode::UNAVAILABLE, "the fake daemon stops"};
}

namespace {

void FillFakeG4(v1::G4State state, bool takes_puts, v1::G4Status* g4) {
  g4->set_where("http://s3/bucket");
  g4->set_state(state);
  g4->set_takes_puts(takes_puts);
  g4->set_recalled_chunks(3);
  g4->set_recalled_bytes(3 << 20);
  g4->set_written_chunks(5);
  g4->set_written_bytes(5 << 20);
  if (state == v1::G4_STATE_WELL && takes_puts) return;
  g4->set_error_code("NoSuchBucket");
  g4->set_error_message("The bucket does not exist");
  g4->set_what_to_do("create the bucket");
  if (state != v1::G4_STATE_WELL) g4->set_retry_in_ms(42'000);
}

}  // namespace

grpc::Status FakeAdminService::Status(grpc::ServerContext*, const v1::StatusRequest*,
                                      v1::StatusResponse* response) {
  response->set_version("fake");
  response->set_state(v1::SERVING_STATE_SERVING);
  // Each time a second later, with a hundred keys more, of which forty were there.
  const uint64_t asked = ++statuses;
  response->set_uptime_ms(1000 * asked);
  auto& counters = *response->mutable_counters();
  counters["lookups"] = 10 * asked;
  counters["lookup_keys"] = 100 * asked;
  counters["lookup_leading_keys"] = 40 * asked;
  counters["put_bytes"] = asked << 20;
  counters["scrubbed_chunks"] = scrubbed_;
  counters["scrub_damaged_chunks"] = scrub_damaged_;
  auto* session = response->add_sessions();
  session->set_client_name("engine");
  session->set_peer("pid=7 uid=0 gid=0");
  session->set_leases(asked % 2);
  auto* tenant = response->add_tenants();
  tenant->set_name("default");
  tenant->set_g3_quota_bytes(7);
  response->mutable_g2()->set_capacity_bytes(g2_capacity);
  response->mutable_g2()->set_to_come_bytes(g2_to_come);
  response->mutable_g2()->set_used_bytes(g2_used);
  if (dirty_answers > 0) {
    --dirty_answers;
    response->mutable_g2()->set_dirty_bytes(4096);
  }
  response->mutable_g2()->set_chunks(kv_->chunks());
  if (const int state = g4_state; state != v1::G4_STATE_UNSPECIFIED) {
    FillFakeG4(static_cast<v1::G4State>(state), g4_takes_puts, response->mutable_g4());
    counters["g4_offered_chunks"] = 10;
    counters["g4_dropped_chunks"] = 1;
    counters["g4_failed_writes"] = 2;
    counters["g4_written_chunks"] = 7;
  }
  auto* device = response->add_devices();
  device->set_path("/fake");
  device->set_state("ok");
  if (joining_answers > 0) {
    --joining_answers;
    device->set_state("joining");
    device->set_message("its index is read: 7 records so far");
  }
  device->set_capacity_bytes(device_capacity);
  device->set_directory_bytes(directory_bytes);
  device->set_built_bytes(device_capacity);
  return grpc::Status::OK;
}

grpc::Status FakeAdminService::Clear(grpc::ServerContext*, const v1::ClearRequest* request,
                                     v1::ClearResponse* response) {
  response->set_g4(request->g4());
  response->set_cleared_chunks(kv_->chunks());
  kv_->ClearChunks();
  return grpc::Status::OK;
}

grpc::Status FakeAdminService::Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                                     v1::DrainResponse* response) {
  drain_waited_for_g4 = request->g4();
  if (g4_state != v1::G4_STATE_UNSPECIFIED) response->set_g4_chunks_left(g4_left_at_drain);
  if (request->to_peers() && hand_over_at_drain) hand_over_at_drain(response);
  return grpc::Status::OK;
}

grpc::Status FakeAdminService::ReloadConfig(grpc::ServerContext*, const v1::ReloadConfigRequest*,
                                            v1::ReloadConfigResponse* response) {
  if (refuse_reload) {
    return {grpc::StatusCode::FAILED_PRECONDITION, "needs a restart: g2.capacity: 1GiB -> 2GiB"};
  }
  v1::ConfigChange* change = response->add_changes();
  change->set_key("log.level");
  change->set_before("info");
  change->set_after("debug");
  response->set_hash("00ff");
  return grpc::Status::OK;
}

grpc::Status FakeAdminService::ShowConfig(grpc::ServerContext*, const v1::ShowConfigRequest*,
                                          v1::ShowConfigResponse* response) {
  for (const char* origin : {"default", "/kv.yaml:3"}) {
    v1::ConfigValue* value = response->add_values();
    value->set_key(std::string("key.") + origin);
    value->set_value("7");
    value->set_origin(origin);
    value->set_default_value("7");
    value->set_live(true);
  }
  response->set_hash("00ff");
  response->set_file("/kv.yaml");
  return grpc::Status::OK;
}

grpc::Status FakeAdminService::ShowReuse(grpc::ServerContext*, const v1::ShowReuseRequest*,
                                         v1::ShowReuseResponse* response) {
  if (unused) return grpc::Status::OK;
  response->set_measured_ms(3'600'000);
  response->set_lookups(10);
  response->set_wanted_chunks(1'000);
  response->set_found_chunks(310);
  response->set_cold_chunks(400);
  for (const uint64_t below : {uint64_t{1} << 20, uint64_t{16} << 30}) {
    v1::ReuseDistance* distance = response->add_distances();
    distance->set_below_bytes(static_cast<double>(below));
    distance->set_chunks(300);
  }
  response->set_stored_chunks(400);
  response->set_stored_bytes(400.0 * (1 << 20));
  response->set_sampled_chunks(400);
  response->set_sampled_share(1);
  return grpc::Status::OK;
}

grpc::Status FakeAdminService::ListNamespaces(grpc::ServerContext*,
                                              const v1::ListNamespacesRequest*,
                                              v1::ListNamespacesResponse* response) {
  v1::NamespaceStatus* ns = response->add_namespaces();
  ns->set_digest(std::string(16, '\x0f'));
  ns->set_tenant("default");
  ns->set_model("llama");
  ns->set_chunks(kv_->chunks());
  return grpc::Status::OK;
}

grpc::Status FakeAdminService::Evict(grpc::ServerContext*, const v1::EvictRequest* request,
                                     v1::EvictResponse* response) {
  if (!request->tenant().empty() && request->tenant() != "default") {
    return {grpc::StatusCode::NOT_FOUND, "there is no tenant of that name"};
  }
  response->set_chunks(1);
  response->set_bytes(request->bytes());
  return grpc::Status::OK;
}

grpc::Status FakeAdminService::Verify(grpc::ServerContext*, const v1::VerifyRequest* request,
                                      v1::VerifyResponse*) {
  verify_rate = request->bytes_per_second();
  scrubbed_ += 5;
  scrub_damaged_ += damaged;
  return grpc::Status::OK;
}

FakeDaemon::FakeDaemon() {
  std::string pattern = "/tmp/kvkeep-fake-XXXXXX";
  KVKEEP_CHECK(mkdtemp(pattern.data()) != nullptr);
  directory_ = pattern;
  Start();
}

FakeDaemon::~FakeDaemon() {
  Stop();
  std::filesystem::remove_all(directory_);
}

void FakeDaemon::Start() {
  kv.EndSessions(false);
  kv.NewIncarnation();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(endpoint(), grpc::InsecureServerCredentials());
  builder.AddListeningPort(admin_endpoint(), grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(8 * kMiB);
  builder.RegisterService(&kv);
  builder.RegisterService(&admin);
  server_ = builder.BuildAndStart();
  KVKEEP_CHECK(server_ != nullptr);
}

void FakeDaemon::Stop() {
  if (server_ == nullptr) return;
  kv.EndSessions(true);
  server_->Shutdown(std::chrono::system_clock::now());  // cancels what is in flight
  server_->Wait();
  server_.reset();
}

}  // namespace kvkeep::fakes
