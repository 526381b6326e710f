// Prints one line for each API, version and direction that this project speaks: "<api> <version> <kind> <hex of header and body>".
// Run with the jars of Kafka 4.1.0:  java -cp "kafka-clients-4.1.0.jar:slf4j-api-1.7.36.jar" GoldenMessages.java > messages-4.1.0.txt
// Each message has something in every field that its version has; tests/protocol/golden_messages.py builds the same ones.

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.MemoryRecords;

public class GoldenMessages {
    static final Uuid TOPIC_ID = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L);

    public static void main(String[] arguments) {
        print(ApiKeys.PRODUCE, 3, 13);
        print(ApiKeys.METADATA, 1, 13);
        print(ApiKeys.API_VERSIONS, 0, 4);
        print(ApiKeys.INIT_PRODUCER_ID, 0, 5);
    }

    static void print(ApiKeys api, int from, int to) {
        for (int version = from; version <= to; version++) {
            Message requestHeader = new RequestHeaderData()
                .setRequestApiKey(api.id).setRequestApiVersion((short) version).setCorrelationId(77).setClientId("client-ü");
            line(api, version, "request", requestHeader, api.requestHeaderVersion((short) version), request(api, version));
            Message responseHeader = new ResponseHeaderData().setCorrelationId(77);
            line(api, version, "response", responseHeader, api.responseHeaderVersion((short) version), response(api, version));
        }
    }

    static void line(ApiKeys api, int version, String kind, Message header, short headerVersion, Message body) {
        String hex = hex(MessageUtil.toByteBufferAccessor(header, headerVersion).buffer())
            + hex(MessageUtil.toByteBufferAccessor(body, (short) version).buffer());
        System.out.println(api.name() + " " + version + " " + kind + " " + hex);
    }

    static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    static Message request(ApiKeys api, int version) {
        return switch (api) {
            case PRODUCE -> produceRequest();
            case METADATA -> metadataRequest(version);
            case API_VERSIONS -> new ApiVersionsRequestData().setClientSoftwareName("sink").setClientSoftwareVersion("0.1.0");
            default -> initProducerIdRequest(version);
        };
    }

    static Message response(ApiKeys api, int version) {
        return switch (api) {
            case PRODUCE -> produceResponse(version);
            case METADATA -> metadataResponse(version);
            case API_VERSIONS -> apiVersionsResponse(version);
            default -> new InitProducerIdResponseData()
                .setThrottleTimeMs(5).setErrorCode((short) 90).setProducerId(1L << 40).setProducerEpoch((short) 7);
        };
    }

    static Message produceRequest() {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(new byte[] {1, 2, 3, 4, 5}));
        ProduceRequestData.TopicProduceData topic = new ProduceRequestData.TopicProduceData()
            .setName("topic").setTopicId(TOPIC_ID)
            .setPartitionData(List.of(
                new ProduceRequestData.PartitionProduceData().setIndex(0).setRecords(records),
                new ProduceRequestData.PartitionProduceData().setIndex(1 << 20).setRecords(null)));
        return new ProduceRequestData().setTransactionalId("tx").setAcks((short) -1).setTimeoutMs(30_000)
            .setTopicData(new ProduceRequestData.TopicProduceDataCollection(List.of(topic).iterator()));
    }

    static Message produceResponse(int version) {
        ProduceResponseData.PartitionProduceResponse partition = new ProduceResponseData.PartitionProduceResponse()
            .setIndex(3).setErrorCode((short) 6).setBaseOffset(1L << 40).setLogAppendTimeMs(1_700_000_000_000L).setLogStartOffset(9)
            .setErrorMessage("not the leader")
            .setRecordErrors(List.of(
                new ProduceResponseData.BatchIndexAndErrorMessage().setBatchIndex(2).setBatchIndexErrorMessage("bad key"),
                new ProduceResponseData.BatchIndexAndErrorMessage().setBatchIndex(4).setBatchIndexErrorMessage(null)));
        ProduceResponseData response = new ProduceResponseData().setThrottleTimeMs(11);
        if (version >= 10) {
            partition.setCurrentLeader(new ProduceResponseData.LeaderIdAndEpoch().setLeaderId(2).setLeaderEpoch(8));
            ProduceResponseData.NodeEndpoint node = new ProduceResponseData.NodeEndpoint()
                .setNodeId(2).setHost("broker-2").setPort(9092).setRack("r1");
            response.setNodeEndpoints(new ProduceResponseData.NodeEndpointCollection(List.of(node).iterator()));
        }
        ProduceResponseData.TopicProduceResponse topic = new ProduceResponseData.TopicProduceResponse()
            .setName("topic").setTopicId(TOPIC_ID).setPartitionResponses(List.of(partition));
        return response.setResponses(new ProduceResponseData.TopicProduceResponseCollection(List.of(topic).iterator()));
    }

    static Message metadataRequest(int version) {
        MetadataRequestData request = new MetadataRequestData().setTopics(List.of(
            new MetadataRequestData.MetadataRequestTopic().setTopicId(TOPIC_ID).setName("topic"),
            new MetadataRequestData.MetadataRequestTopic().setName(version >= 10 ? null : "other")));
        return request
            .setAllowAutoTopicCreation(version < 4)
            .setIncludeClusterAuthorizedOperations(version >= 8 && version <= 10)
            .setIncludeTopicAuthorizedOperations(version >= 8);
    }

    static Message metadataResponse(int version) {
        MetadataResponseData.MetadataResponsePartition partition = new MetadataResponseData.MetadataResponsePartition()
            .setErrorCode((short) 5).setPartitionIndex(1).setLeaderId(-1).setLeaderEpoch(6)
            .setReplicaNodes(List.of(1, 2, 3)).setIsrNodes(List.of()).setOfflineReplicas(List.of(2));
        MetadataResponseData.MetadataResponseTopic topic = new MetadataResponseData.MetadataResponseTopic()
            .setErrorCode((short) 0).setName(version >= 12 ? null : "topic").setTopicId(TOPIC_ID).setIsInternal(true)
            .setPartitions(List.of(partition));
        MetadataResponseData response = new MetadataResponseData().setThrottleTimeMs(4).setClusterId("cluster").setControllerId(1);
        if (version >= 8) topic.setTopicAuthorizedOperations(255);
        if (version >= 8 && version <= 10) response.setClusterAuthorizedOperations(511);
        if (version >= 13) response.setErrorCode((short) 129);
        MetadataResponseData.MetadataResponseBroker first = new MetadataResponseData.MetadataResponseBroker()
            .setNodeId(1).setHost("broker-1").setPort(9092).setRack(null);
        MetadataResponseData.MetadataResponseBroker second = new MetadataResponseData.MetadataResponseBroker()
            .setNodeId(2).setHost("broker-2").setPort(19092).setRack("r2");
        return response
            .setBrokers(new MetadataResponseData.MetadataResponseBrokerCollection(List.of(first, second).iterator()))
            .setTopics(new MetadataResponseData.MetadataResponseTopicCollection(List.of(topic).iterator()));
    }

    static Message apiVersionsResponse(int version) {
        ApiVersionsResponseData.ApiVersion produce = new ApiVersionsResponseData.ApiVersion()
            .setApiKey((short) 0).setMinVersion((short) 3).setMaxVersion((short) 13);
        ApiVersionsResponseData response = new ApiVersionsResponseData().setErrorCode((short) 0).setThrottleTimeMs(3)
            .setApiKeys(new ApiVersionsResponseData.ApiVersionCollection(List.of(produce).iterator()));
        if (version < 3) return response;
        ApiVersionsResponseData.SupportedFeatureKey supported = new ApiVersionsResponseData.SupportedFeatureKey()
            .setName("metadata.version").setMinVersion((short) 7).setMaxVersion((short) 27);
        ApiVersionsResponseData.FinalizedFeatureKey finalized = new ApiVersionsResponseData.FinalizedFeatureKey()
            .setName("metadata.version").setMinVersionLevel((short) 27).setMaxVersionLevel((short) 27);
        return response
            .setSupportedFeatures(new ApiVersionsResponseData.SupportedFeatureKeyCollection(List.of(supported).iterator()))
            .setFinalizedFeaturesEpoch(12)
            .setFinalizedFeatures(new ApiVersionsResponseData.FinalizedFeatureKeyCollection(List.of(finalized).iterator()))
            .setZkMigrationReady(true);
    }

    static Message initProducerIdRequest(int version) {
        InitProducerIdRequestData request = new InitProducerIdRequestData().setTransactionalId("tx").setTransactionTimeoutMs(60_000);
        return version < 3 ? request : request.setProducerId(1L << 40).setProducerEpoch((short) 6);
    }
}
