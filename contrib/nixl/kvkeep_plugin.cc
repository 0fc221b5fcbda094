// The NIXL backend KVKEEP: objects (OBJ_SEG) are chunks of the node's kvkeep daemon, written from
// and read into host memory (DRAM_SEG). README.md is for its users.
#include <backend/backend_plugin.h>
#include <kvkeep.h>

#include <memory>
#include <string>
#include <vector>

#include "contrib/nixl/parameters.h"
#include "contrib/nixl/registered.h"
#include "contrib/nixl/transfer.h"

namespace kvkeep_nixl {

constexpr size_t kMaxClientName = 128;

class Engine : public nixlBackendEngine {
 public:
  explicit Engine(const nixlBackendInitParams* given) : nixlBackendEngine(given) {
    Parameters parameters;
    std::string wrong = ReadParameters(*given->customParams, &parameters);
    if (wrong.empty()) wrong = Connect(parameters);
    if (wrong.empty()) return;
    NIXL_ERROR << "create_backend: parameter " << wrong;
    initErr = true;
  }

  // Transfers that were not released are ended here: their memory is not used any more.
  ~Engine() override {
    kvkeep_namespace_close(via_.ns);
    kvkeep_client_destroy(via_.client);
  }

  bool supportsRemote() const override { return false; }
  bool supportsLocal() const override { return true; }
  bool supportsNotif() const override { return false; }
  nixl_mem_list_t getSupportedMems() const override { return {DRAM_SEG, OBJ_SEG}; }

  nixl_status_t registerMem(const nixlBlobDesc& what, const nixl_mem_t& type,
                            nixlBackendMD*& out) override {
    if (type == DRAM_SEG) {
      out = new Memory(via_.client, what.addr, what.len);
      return NIXL_SUCCESS;
    }
    if (type != OBJ_SEG) return NIXL_ERR_NOT_SUPPORTED;
    // A device number is no name: another process gives the same one to another object.
    if (what.metaInfo.empty()) return NIXL_ERR_INVALID_PARAM;
    out = new Object(what.metaInfo);
    return NIXL_SUCCESS;
  }
  nixl_status_t deregisterMem(nixlBackendMD* what) override {
    delete what;
    return NIXL_SUCCESS;
  }

  nixl_status_t connect(const std::string&) override { return NIXL_SUCCESS; }
  nixl_status_t disconnect(const std::string&) override { return NIXL_SUCCESS; }
  nixl_status_t loadLocalMD(nixlBackendMD* input, nixlBackendMD*& output) override {
    output = input;
    return NIXL_SUCCESS;
  }
  nixl_status_t unloadMD(nixlBackendMD*) override { return NIXL_SUCCESS; }

  nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                         nixlBackendReqH*& handle, const nixl_opt_b_args_t*) const override {
    if (remote_agent != localAgent) return NIXL_ERR_NOT_SUPPORTED;
    auto transfer = std::make_unique<Transfer>(&via_, operation);
    const nixl_status_t status = transfer->Take(local, remote);
    if (status == NIXL_SUCCESS) handle = transfer.release();
    return status;
  }
  nixl_status_t postXfer(const nixl_xfer_op_t&, const nixl_meta_dlist_t&, const nixl_meta_dlist_t&,
                         const std::string&, nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t*) const override {
    return static_cast<Transfer*>(handle)->Post();
  }
  nixl_status_t checkXfer(nixlBackendReqH* handle) const override {
    return static_cast<Transfer*>(handle)->Check();
  }
  nixl_status_t releaseReqH(nixlBackendReqH* handle) const override {
    delete handle;
    return NIXL_SUCCESS;
  }

  // Says of each object whether the node has it; of a daemon that is away, that it has none.
  nixl_status_t queryMem(const nixl_reg_dlist_t& objects,
                         std::vector<nixl_query_resp_t>& found) const override {
    found.assign(objects.descCount(), std::nullopt);
    std::vector<kvkeep_key> keys;
    for (const auto& object : objects) keys.push_back(Object(object.metaInfo).key);
    std::vector<uint8_t> presence(keys.size(), 0);
    const kvkeep_lookup_request request = {.size = sizeof request,
                                           .deadline_ms = via_.deadline_ms,
                                           .keys = {.ns = via_.ns,
                                                    .keys = keys.data(),
                                                    .key_count = static_cast<uint32_t>(keys.size()),
                                                    .part_count = 1,
                                                    .parts = &via_.part},
                                           .lease_mode = KVKEEP_LEASE_NONE,
                                           .presence = presence.data(),
                                           .presence_bytes = presence.size()};
    kvkeep_lookup_reply reply = {.size = sizeof reply};
    if (keys.empty() || kvkeep_lookup(via_.client, &request, &reply, nullptr) != KVKEEP_OK) {
      return NIXL_SUCCESS;
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      if (presence[i] != 0 && !objects[i].metaInfo.empty()) found[i] = nixl_b_params_t();
    }
    return NIXL_SUCCESS;
  }

 private:
  // Returns "", or what is wrong, beginning with the parameter's name.
  std::string Connect(const Parameters& parameters) {
    via_.part = parameters.part;
    via_.deadline_ms = parameters.deadline_ms;
    via_.replace = parameters.replace;
    const std::string name = ("nixl " + localAgent).substr(0, kMaxClientName);
    // The local path does without gRPC. NIXL's wheel brings a gRPC of its own, and the loader makes
    // GNU's unique symbols of both the same objects: ours crashes then when it connects.
    const kvkeep_client_options options = {.size = sizeof options,
                                           .default_deadline_ms = parameters.deadline_ms,
                                           .endpoint = parameters.endpoint.c_str(),
                                           .client_name = name.c_str(),
                                           .path = KVKEEP_PATH_LOCAL};
    kvkeep_error error;
    if (kvkeep_connect(&options, &via_.client, &error) != KVKEEP_OK) {
      return std::string("endpoint: ") + error.message;
    }
    // kvkeep's command line and its Python package declare it so: they find the same objects.
    const kvkeep_namespace_spec spec = {.size = sizeof spec,
                                        .tokens_per_chunk = 1,
                                        .model = parameters.model.c_str(),
                                        .parts = parameters.parts};
    if (kvkeep_namespace_open(via_.client, &spec, 0, &via_.ns, &error) != KVKEEP_OK) {
      return std::string("namespace: ") + error.message;
    }
    return "";
  }

  mutable Via via_;
};

}  // namespace kvkeep_nixl

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin* nixl_plugin_init() {
  return nixlBackendPluginCreator<kvkeep_nixl::Engine>::create(
      NIXL_PLUGIN_API_VERSION, "KVKEEP", kvkeep_version(), kvkeep_nixl::DefaultParameters(),
      {DRAM_SEG, OBJ_SEG});
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini() {}
