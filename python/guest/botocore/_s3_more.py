"""S3's operations that few functions ask for, in the notation that `botocore._shapes` reads: loaded with the first of them.

Most are about a bucket's settings, of which the backend lets through what reads them.
"""

from botocore import _s3

# What `$name` stands for here, beside those of `_s3`.
_s3.GROUPS |= {
    "filter": "Filter:{Prefix Tag:{!Key !Value} And:{Prefix Tags/Tag:*{!Key !Value}}}",
    "when": "Filter:{Key/S3Key:{FilterRules/FilterRule:*{Name Value}}}",
    "analytics": "!Id $filter !StorageClassAnalysis:{DataExport:{!OutputSchemaVersion !Destination:{!S3BucketDestination:{!Format"
    " BucketAccountId !Bucket Prefix}}}}",
    "tiering": "!Id $filter !Status !Tierings/Tiering:*{!Days:integer !AccessTier}",
    "inventory": "!Destination:{!S3BucketDestination:{AccountId !Bucket !Format Prefix Encryption:{SSES3/SSE-S3:{}"
    " SSEKMS/SSE-KMS:{!KeyId}}}} !IsEnabled:boolean Filter:{!Prefix} !Id !IncludedObjectVersions OptionalFields:[Field]"
    " !Schedule:{!Frequency}",
    "metrics": "!Id Filter:{Prefix Tag:{!Key !Value} AccessPointArn And:{Prefix Tags/Tag:*{!Key !Value} AccessPointArn}}",
    "logging": "LoggingEnabled:{!TargetBucket TargetGrants:[Grant {Grantee:{DisplayName EmailAddress ID !Type URI} Permission}]"
    " !TargetPrefix TargetObjectKeyFormat:{SimplePrefix:{} PartitionedPrefix:{PartitionDateSource}}}",
    "notification": "TopicConfigurations/TopicConfiguration:*{Id !TopicArn/Topic !Events/Event:*string $when}"
    " QueueConfigurations/QueueConfiguration:*{Id !QueueArn/Queue !Events/Event:*string $when}"
    " LambdaFunctionConfigurations/CloudFunctionConfiguration:*{Id !LambdaFunctionArn/CloudFunction !Events/Event:*string $when}"
    " EventBridgeConfiguration:{}",
    "old_notification": "TopicConfiguration:{Id Events/Event:*string Event Topic} QueueConfiguration:{Id Event Events/Event:*string Queue}"
    " CloudFunctionConfiguration:{Id Event Events/Event:*string CloudFunction InvocationRole}",
    "replication": "!Role !Rules/Rule:*{ID Priority:integer Prefix $filter !Status"
    " SourceSelectionCriteria:{SseKmsEncryptedObjects:{!Status} ReplicaModifications:{!Status}} ExistingObjectReplication:{!Status} !Destination:{!Bucket Account StorageClass"
    " AccessControlTranslation:{!Owner} EncryptionConfiguration:{ReplicaKmsKeyID} ReplicationTime:{!Status"
    " !Time:{Minutes:integer}} Metrics:{!Status EventThreshold:{Minutes:integer}}} DeleteMarkerReplication:{Status}}",
    "locked": "ObjectLockEnabled Rule:{DefaultRetention:{Mode Days:integer Years:integer DefaultEventHold:{Days:integer Years:integer}}}",
    "retention": "Mode RetainUntilDate:timestamp EventHold EventHoldDuration:{Days:integer Years:integer}",
    "blocked": "BlockPublicAcls:boolean IgnorePublicAcls:boolean BlockPublicPolicy:boolean RestrictPublicBuckets:boolean",
    "routing": "RoutingRules:[RoutingRule {Condition:{HttpErrorCodeReturnedEquals KeyPrefixEquals} !Redirect:{HostName HttpRedirectCode"
    " Protocol ReplaceKeyPrefixWith ReplaceKeyWith}}]",
    "old_rules": "Rules/Rule:*{Expiration:{Date:timestamp Days:integer ExpiredObjectDeleteMarker:boolean} ID !Prefix !Status"
    " Transition:{Date:timestamp Days:integer StorageClass} NoncurrentVersionTransition:{NoncurrentDays:integer StorageClass"
    " NewerNoncurrentVersions:integer} NoncurrentVersionExpiration:{NoncurrentDays:integer NewerNoncurrentVersions:integer}"
    " AbortIncompleteMultipartUpload:{DaysAfterInitiation:integer}}",
}

OPERATIONS = {
    "DeleteBucketAnalyticsConfiguration": ("DELETE bucket?analytics", "!Bucket !Id@?id ExpectedBucketOwner", "", ""),
    "DeleteBucketIntelligentTieringConfiguration": ("DELETE bucket?intelligent-tiering", "!Bucket !Id@?id ExpectedBucketOwner", "", ""),
    "DeleteBucketInventoryConfiguration": ("DELETE bucket?inventory", "!Bucket !Id@?id ExpectedBucketOwner", "", ""),
    "DeleteBucketMetricsConfiguration": ("DELETE bucket?metrics", "!Bucket !Id@?id ExpectedBucketOwner", "", ""),
    "DeleteBucketOwnershipControls": ("DELETE bucket?ownershipControls", "!Bucket ExpectedBucketOwner", "", ""),
    "DeleteBucketReplication": ("DELETE bucket?replication", "!Bucket ExpectedBucketOwner", "", ""),
    "DeleteBucketWebsite": ("DELETE bucket?website", "!Bucket ExpectedBucketOwner", "", ""),
    "DeletePublicAccessBlock": ("DELETE bucket?publicAccessBlock", "!Bucket ExpectedBucketOwner", "", ""),
    "GetBucketAccelerateConfiguration": (
        "GET bucket?accelerate",
        "!Bucket ExpectedBucketOwner RequestPayer",
        "RequestCharged",
        "{Status}",
    ),
    "GetBucketAnalyticsConfiguration": (
        "GET bucket?analytics",
        "!Bucket !Id@?id ExpectedBucketOwner",
        "",
        "AnalyticsConfiguration:{$analytics}",
    ),
    "GetBucketIntelligentTieringConfiguration": (
        "GET bucket?intelligent-tiering",
        "!Bucket !Id@?id ExpectedBucketOwner",
        "",
        "IntelligentTieringConfiguration:{$tiering}",
    ),
    "GetBucketInventoryConfiguration": (
        "GET bucket?inventory",
        "!Bucket !Id@?id ExpectedBucketOwner",
        "",
        "InventoryConfiguration:{$inventory}",
    ),
    "GetBucketLifecycle": ("GET bucket?lifecycle", "!Bucket ExpectedBucketOwner", "", "{$old_rules}"),
    "GetBucketLogging": ("GET bucket?logging", "!Bucket ExpectedBucketOwner", "", "{$logging}"),
    "GetBucketMetricsConfiguration": (
        "GET bucket?metrics",
        "!Bucket !Id@?id ExpectedBucketOwner",
        "",
        "MetricsConfiguration:{$metrics}",
    ),
    "GetBucketNotification": ("GET bucket?notification", "!Bucket ExpectedBucketOwner", "", "{$old_notification}"),
    "GetBucketNotificationConfiguration": ("GET bucket?notification", "!Bucket ExpectedBucketOwner", "", "{$notification}"),
    "GetBucketOwnershipControls": (
        "GET bucket?ownershipControls",
        "!Bucket ExpectedBucketOwner",
        "",
        "OwnershipControls:{!Rules/Rule:*{!ObjectOwnership}}",
    ),
    "GetBucketPolicyStatus": ("GET bucket?policyStatus", "!Bucket ExpectedBucketOwner", "", "PolicyStatus:{IsPublic:boolean}"),
    "GetBucketReplication": ("GET bucket?replication", "!Bucket ExpectedBucketOwner", "", "ReplicationConfiguration:{$replication}"),
    "GetBucketRequestPayment": ("GET bucket?requestPayment", "!Bucket ExpectedBucketOwner", "", "{Payer}"),
    "GetBucketWebsite": (
        "GET bucket?website",
        "!Bucket ExpectedBucketOwner",
        "",
        "{RedirectAllRequestsTo:{!HostName Protocol} IndexDocument:{!Suffix} ErrorDocument:{!Key} $routing}",
    ),
    "GetObjectLegalHold": ("GET key?legal-hold", "!Bucket !Key VersionId RequestPayer ExpectedBucketOwner", "", "LegalHold:{Status}"),
    "GetObjectLockConfiguration": ("GET bucket?object-lock", "!Bucket ExpectedBucketOwner", "", "ObjectLockConfiguration:{$locked}"),
    "GetObjectRetention": (
        "GET key?retention",
        "!Bucket !Key VersionId RequestPayer ExpectedBucketOwner",
        "",
        "Retention:{$retention}",
    ),
    "GetPublicAccessBlock": (
        "GET bucket?publicAccessBlock",
        "!Bucket ExpectedBucketOwner",
        "",
        "PublicAccessBlockConfiguration:{$blocked}",
    ),
    "ListBucketAnalyticsConfigurations": (
        "GET bucket?analytics",
        "!Bucket ContinuationToken ExpectedBucketOwner",
        "",
        "{IsTruncated:boolean ContinuationToken NextContinuationToken"
        " AnalyticsConfigurationList/AnalyticsConfiguration:*{$analytics}}",
    ),
    "ListBucketIntelligentTieringConfigurations": (
        "GET bucket?intelligent-tiering",
        "!Bucket ContinuationToken ExpectedBucketOwner",
        "",
        "{IsTruncated:boolean ContinuationToken NextContinuationToken"
        " IntelligentTieringConfigurationList/IntelligentTieringConfiguration:*{$tiering}}",
    ),
    "ListBucketInventoryConfigurations": (
        "GET bucket?inventory",
        "!Bucket ContinuationToken ExpectedBucketOwner",
        "",
        "{ContinuationToken InventoryConfigurationList/InventoryConfiguration:*{$inventory} IsTruncated:boolean"
        " NextContinuationToken}",
    ),
    "ListBucketMetricsConfigurations": (
        "GET bucket?metrics",
        "!Bucket ContinuationToken ExpectedBucketOwner",
        "",
        "{IsTruncated:boolean ContinuationToken NextContinuationToken MetricsConfigurationList/MetricsConfiguration:*{$metrics}}",
    ),
    "PutBucketAccelerateConfiguration": (
        "PUT bucket?accelerate",
        "!Bucket !AccelerateConfiguration:{Status} ExpectedBucketOwner ChecksumAlgorithm",
        "",
        "",
    ),
    "PutBucketAnalyticsConfiguration": (
        "PUT bucket?analytics",
        "!Bucket !Id@?id !AnalyticsConfiguration:{$analytics} ExpectedBucketOwner",
        "",
        "",
    ),
    "PutBucketIntelligentTieringConfiguration": (
        "PUT bucket?intelligent-tiering",
        "!Bucket !Id@?id ExpectedBucketOwner !IntelligentTieringConfiguration:{$tiering}",
        "",
        "",
    ),
    "PutBucketInventoryConfiguration": (
        "PUT bucket?inventory",
        "!Bucket !Id@?id !InventoryConfiguration:{$inventory} ExpectedBucketOwner",
        "",
        "",
    ),
    "PutBucketLifecycle": (
        "PUT bucket?lifecycle",
        "!Bucket ContentMD5 ChecksumAlgorithm LifecycleConfiguration:{!$old_rules} ExpectedBucketOwner",
        "",
        "",
    ),
    "PutBucketLogging": (
        "PUT bucket?logging",
        "!Bucket !BucketLoggingStatus:{$logging} ContentMD5 ChecksumAlgorithm ExpectedBucketOwner",
        "",
        "",
    ),
    "PutBucketMetricsConfiguration": (
        "PUT bucket?metrics",
        "!Bucket !Id@?id !MetricsConfiguration:{$metrics} ExpectedBucketOwner",
        "",
        "",
    ),
    "PutBucketNotification": (
        "PUT bucket?notification",
        "!Bucket ContentMD5 ChecksumAlgorithm !NotificationConfiguration:{$old_notification} ExpectedBucketOwner",
        "",
        "",
    ),
    "PutBucketNotificationConfiguration": (
        "PUT bucket?notification",
        "!Bucket !NotificationConfiguration:{$notification} ExpectedBucketOwner"
        " SkipDestinationValidation@x-amz-skip-destination-validation:boolean",
        "",
        "",
    ),
    "PutBucketOwnershipControls": (
        "PUT bucket?ownershipControls",
        "!Bucket ContentMD5 ExpectedBucketOwner !OwnershipControls:{!Rules/Rule:*{!ObjectOwnership}} ChecksumAlgorithm",
        "",
        "",
    ),
    "PutBucketReplication": (
        "PUT bucket?replication",
        "!Bucket ContentMD5 ChecksumAlgorithm !ReplicationConfiguration:{$replication} Token@x-amz-bucket-object-lock-token"
        " ExpectedBucketOwner",
        "",
        "",
    ),
    "PutBucketRequestPayment": (
        "PUT bucket?requestPayment",
        "!Bucket ContentMD5 ChecksumAlgorithm !RequestPaymentConfiguration:{!Payer} ExpectedBucketOwner",
        "",
        "",
    ),
    "PutBucketWebsite": (
        "PUT bucket?website",
        "!Bucket ContentMD5 ChecksumAlgorithm !WebsiteConfiguration:{ErrorDocument:{!Key} IndexDocument:{!Suffix}"
        " RedirectAllRequestsTo:{!HostName Protocol} $routing} ExpectedBucketOwner",
        "",
        "",
    ),
    "PutObjectLegalHold": (
        "PUT key?legal-hold",
        "!Bucket !Key LegalHold:{Status} RequestPayer VersionId ContentMD5 ChecksumAlgorithm ExpectedBucketOwner",
        "RequestCharged",
        "",
    ),
    "PutObjectLockConfiguration": (
        "PUT bucket?object-lock",
        "!Bucket ObjectLockConfiguration:{$locked} RequestPayer Token@x-amz-bucket-object-lock-token ContentMD5"
        " ChecksumAlgorithm ExpectedBucketOwner",
        "RequestCharged",
        "",
    ),
    "PutObjectRetention": (
        "PUT key?retention",
        "!Bucket !Key Retention:{$retention} RequestPayer VersionId BypassGovernanceRetention ContentMD5 ChecksumAlgorithm"
        " ExpectedBucketOwner",
        "RequestCharged",
        "",
    ),
    "PutPublicAccessBlock": (
        "PUT bucket?publicAccessBlock",
        "!Bucket ContentMD5 ChecksumAlgorithm !PublicAccessBlockConfiguration:{$blocked} ExpectedBucketOwner",
        "",
        "",
    ),
    "RestoreObject": (
        "POST key?restore",
        "!Bucket !Key VersionId RestoreRequest:{Days:integer GlacierJobParameters:{!Tier} Type Tier Description"
        " SelectParameters:{!InputSerialization:{CSV:{FileHeaderInfo Comments QuoteEscapeCharacter RecordDelimiter"
        " FieldDelimiter QuoteCharacter AllowQuotedRecordDelimiter:boolean} CompressionType JSON:{Type} Parquet:{}}"
        " !ExpressionType !Expression !OutputSerialization:{CSV:{QuoteFields QuoteEscapeCharacter RecordDelimiter FieldDelimiter"
        " QuoteCharacter} JSON:{RecordDelimiter}}} OutputLocation:{S3:{!BucketName !Prefix Encryption:{!EncryptionType KMSKeyId"
        " KMSContext} CannedACL AccessControlList:[Grant {Grantee:{DisplayName EmailAddress ID !Type URI} Permission}]"
        " Tagging:{!$tags} UserMetadata:[MetadataEntry {Name Value}] StorageClass}}} RequestPayer ChecksumAlgorithm"
        " ExpectedBucketOwner",
        "RequestCharged RestoreOutputPath@x-amz-restore-output-path",
        "",
    ),
}
