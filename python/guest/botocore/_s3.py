"""S3's operations, in the notation that `botocore._shapes` reads.

The order of members is that of S3's own description: it is the order in which messages name them.
"""

API_VERSION = "2006-03-01"
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"

# What `$name` stands for in the tables below.
GROUPS = {
    "checksums": "ChecksumCRC32 ChecksumCRC32C ChecksumCRC64NVME ChecksumSHA1 ChecksumSHA256 ChecksumSHA512 ChecksumMD5"
    " ChecksumXXHASH64 ChecksumXXHASH3 ChecksumXXHASH128",
    "customer": "SSECustomerAlgorithm SSECustomerKey SSECustomerKeyMD5",
    "locks": "ObjectLockMode ObjectLockRetainUntilDate ObjectLockLegalHoldStatus ObjectLockEventHold ObjectLockEventHoldDurationDays"
    " ObjectLockEventHoldDurationYears",
    "conditions": "IfMatch IfModifiedSince IfNoneMatch IfUnmodifiedSince",
    "responses": "ResponseCacheControl ResponseContentDisposition ResponseContentEncoding ResponseContentLanguage ResponseContentType"
    " ResponseExpires",
    "contents": "CacheControl ContentDisposition ContentEncoding ContentLanguage",
    "grants": "GrantFullControl GrantRead GrantReadACP GrantWriteACP",
    "source": "CopySource CopySourceIfMatch CopySourceIfModifiedSince CopySourceIfNoneMatch CopySourceIfUnmodifiedSince",
    "sourcecustomer": "CopySourceSSECustomerAlgorithm CopySourceSSECustomerKey CopySourceSSECustomerKeyMD5",
    "about": "DeleteMarker AcceptRanges Expiration Restore ArchiveStatus LastModified ContentLength ETag $checksums ChecksumType"
    " MissingMeta"
    " VersionId $contents ContentRange ContentType Expires WebsiteRedirectLocation ServerSideEncryption Metadata SSECustomerAlgorithm"
    " SSECustomerKeyMD5 SSEKMSKeyId BucketKeyEnabled StorageClass RequestCharged ReplicationStatus PartsCount TagCount $locks",
    "person": "{DisplayName ID}",
    "prefixes": "CommonPrefixes:*{Prefix}",
    "tags": "TagSet:[Tag {!Key !Value}]",
    "restored": "RestoreStatus:{IsRestoreInProgress:boolean RestoreExpiryDate:timestamp}",
    "grantlist": "Grants/AccessControlList:[Grant {Grantee:{DisplayName EmailAddress ID !Type URI} Permission}]",
    "cors": "CORSRules/CORSRule:*{ID AllowedHeaders/AllowedHeader:*string !AllowedMethods/AllowedMethod:*string"
    " !AllowedOrigins/AllowedOrigin:*string ExposeHeaders/ExposeHeader:*string MaxAgeSeconds:integer}",
    "encryption": "!Rules/Rule:*{ApplyServerSideEncryptionByDefault:{!SSEAlgorithm KMSMasterKeyID} BucketKeyEnabled:boolean"
    " BlockedEncryptionTypes:{EncryptionType:*string}}",
    "lifecycle": "Rules/Rule:*{Expiration:{Date:timestamp Days:integer ExpiredObjectDeleteMarker:boolean} ID Prefix Filter:{Prefix"
    " Tag:{!Key !Value} ObjectSizeGreaterThan:integer ObjectSizeLessThan:integer And:{Prefix Tags/Tag:*{!Key !Value}"
    " ObjectSizeGreaterThan:integer ObjectSizeLessThan:integer}} !Status Transitions/Transition:*{Date:timestamp Days:integer StorageClass}"
    " NoncurrentVersionTransitions/NoncurrentVersionTransition:*{NoncurrentDays:integer StorageClass NewerNoncurrentVersions:integer}"
    " NoncurrentVersionExpiration:{NoncurrentDays:integer NewerNoncurrentVersions:integer}"
    " AbortIncompleteMultipartUpload:{DaysAfterInitiation:integer}}",
}

# Where a member of an input goes: a header field, or a parameter of the query (`?`).
INPUTS = """
ACL x-amz-acl
BucketNamespace x-amz-bucket-namespace
BucketKeyEnabled x-amz-server-side-encryption-bucket-key-enabled:boolean
BucketRegion ?bucket-region
BypassGovernanceRetention x-amz-bypass-governance-retention:boolean
CacheControl cache-control
ChecksumAlgorithm x-amz-checksum-algorithm
ChecksumCRC32 x-amz-checksum-crc32
ChecksumCRC32C x-amz-checksum-crc32c
ChecksumCRC64NVME x-amz-checksum-crc64nvme
ChecksumMD5 x-amz-checksum-md5
ChecksumMode x-amz-checksum-mode
ChecksumSHA1 x-amz-checksum-sha1
ChecksumSHA256 x-amz-checksum-sha256
ChecksumSHA512 x-amz-checksum-sha512
ChecksumType x-amz-checksum-type
ChecksumXXHASH128 x-amz-checksum-xxhash128
ChecksumXXHASH3 x-amz-checksum-xxhash3
ChecksumXXHASH64 x-amz-checksum-xxhash64
ConfirmRemoveSelfBucketAccess x-amz-confirm-remove-self-bucket-access:boolean
ContentDisposition content-disposition
ContentEncoding content-encoding
ContentLanguage content-language
ContentLength content-length:integer
ContentMD5 content-md5
ContentType content-type
ContinuationToken ?continuation-token
CopySource x-amz-copy-source
CopySourceIfMatch x-amz-copy-source-if-match
CopySourceIfModifiedSince x-amz-copy-source-if-modified-since:timestamp
CopySourceIfNoneMatch x-amz-copy-source-if-none-match
CopySourceIfUnmodifiedSince x-amz-copy-source-if-unmodified-since:timestamp
CopySourceRange x-amz-copy-source-range
CopySourceSSECustomerAlgorithm x-amz-copy-source-server-side-encryption-customer-algorithm
CopySourceSSECustomerKey x-amz-copy-source-server-side-encryption-customer-key
CopySourceSSECustomerKeyMD5 x-amz-copy-source-server-side-encryption-customer-key-md5
Delimiter ?delimiter
EncodingType ?encoding-type
ExpectedBucketOwner x-amz-expected-bucket-owner
ExpectedSourceBucketOwner x-amz-source-expected-bucket-owner
Expires expires:timestamp
FetchOwner ?fetch-owner:boolean
GrantFullControl x-amz-grant-full-control
GrantRead x-amz-grant-read
GrantReadACP x-amz-grant-read-acp
GrantWrite x-amz-grant-write
GrantWriteACP x-amz-grant-write-acp
IfMatch if-match
IfMatchInitiatedTime x-amz-if-match-initiated-time:timestamp
IfMatchLastModifiedTime x-amz-if-match-last-modified-time:timestamp
IfMatchSize x-amz-if-match-size:integer
IfModifiedSince if-modified-since:timestamp
IfNoneMatch if-none-match
IfUnmodifiedSince if-unmodified-since:timestamp
KeyMarker ?key-marker
MFA x-amz-mfa
Marker ?marker
MaxBuckets ?max-buckets:integer
MaxKeys ?max-keys:integer
MaxParts ?max-parts:integer
MaxUploads ?max-uploads:integer
Metadata x-amz-meta-:map
MetadataDirective x-amz-metadata-directive
AnnotationDirective x-amz-object-annotation-directive
MpuObjectSize x-amz-mp-object-size:integer
ObjectLockEnabledForBucket x-amz-bucket-object-lock-enabled:boolean
ObjectLockEventHold x-amz-object-lock-event-hold
ObjectLockEventHoldDurationDays x-amz-object-lock-event-hold-duration-days:integer
ObjectLockEventHoldDurationYears x-amz-object-lock-event-hold-duration-years:integer
ObjectLockLegalHoldStatus x-amz-object-lock-legal-hold
ObjectLockMode x-amz-object-lock-mode
ObjectLockRetainUntilDate x-amz-object-lock-retain-until-date:date
ObjectOwnership x-amz-object-ownership
PartNumber ?partNumber:integer
PartNumberMarker ?part-number-marker:integer
Prefix ?prefix
Range range
RequestPayer x-amz-request-payer
ResponseCacheControl ?response-cache-control
ResponseContentDisposition ?response-content-disposition
ResponseContentEncoding ?response-content-encoding
ResponseContentLanguage ?response-content-language
ResponseContentType ?response-content-type
ResponseExpires ?response-expires:timestamp
SSECustomerAlgorithm x-amz-server-side-encryption-customer-algorithm
SSECustomerKey x-amz-server-side-encryption-customer-key
SSECustomerKeyMD5 x-amz-server-side-encryption-customer-key-md5
SSEKMSEncryptionContext x-amz-server-side-encryption-context
SSEKMSKeyId x-amz-server-side-encryption-aws-kms-key-id
ServerSideEncryption x-amz-server-side-encryption
StartAfter ?start-after
StorageClass x-amz-storage-class
Tagging x-amz-tagging
TaggingDirective x-amz-tagging-directive
TransitionDefaultMinimumObjectSize x-amz-transition-default-minimum-object-size
UploadId ?uploadId
UploadIdMarker ?upload-id-marker
VersionId ?versionId
VersionIdMarker ?version-id-marker
WebsiteRedirectLocation x-amz-website-redirect-location
WriteOffsetBytes x-amz-write-offset-bytes:integer
"""

# Which header field a member of an output comes from, where it is not the one that it would go in.
OUTPUTS = """
AbortDate x-amz-abort-date:timestamp
AbortRuleId x-amz-abort-rule-id
AcceptRanges accept-ranges
AccessPointAlias x-amz-access-point-alias:boolean
ArchiveStatus x-amz-archive-status
BucketArn x-amz-bucket-arn
BucketLocationName x-amz-bucket-location-name
BucketLocationType x-amz-bucket-location-type
BucketRegion x-amz-bucket-region
ContentRange content-range
CopySourceVersionId x-amz-copy-source-version-id
DeleteMarker x-amz-delete-marker:boolean
ETag etag
Expiration x-amz-expiration
LastModified last-modified:timestamp
Location location
MissingMeta x-amz-missing-meta:integer
ObjectLockRetainUntilDate x-amz-object-lock-retain-until-date:timestamp
PartsCount x-amz-mp-parts-count:integer
ReplicationStatus x-amz-replication-status
RequestCharged x-amz-request-charged
Restore x-amz-restore
Size x-amz-object-size:integer
TagCount x-amz-tagging-count:integer
VersionId x-amz-version-id
"""

_OWNER = "ExpectedBucketOwner"
_PAYER = f"RequestPayer {_OWNER}"
_LISTED = "LastModified:timestamp ETag ChecksumAlgorithm:*string ChecksumType Size:integer StorageClass Owner:$person $restored"
_ENCRYPTED = "ServerSideEncryption SSECustomerAlgorithm SSECustomerKeyMD5 SSEKMSKeyId"
_HOW = "ServerSideEncryption StorageClass WebsiteRedirectLocation $customer SSEKMSKeyId SSEKMSEncryptionContext BucketKeyEnabled"
_CHANGE = "!Bucket ContentMD5 ChecksumAlgorithm"
_READ = f"!Bucket $conditions !Key Range $responses VersionId $customer RequestPayer PartNumber {_OWNER} ChecksumMode"
_ACCESS = (
    f"ACL AccessControlPolicy:{{$grantlist Owner:$person}} {_CHANGE} GrantFullControl GrantRead GrantReadACP GrantWrite GrantWriteACP"
)

# By name: the method and what it is done to; the input; the output's header fields; the output's document. A document `{…}` is merged
# into the output, another is the member that it names.
OPERATIONS = {
    "AbortMultipartUpload": ("DELETE key", f"!Bucket !Key !UploadId {_PAYER} IfMatchInitiatedTime", "RequestCharged VersionId", ""),
    "CompleteMultipartUpload": (
        "POST key",
        "!Bucket !Key MultipartUpload/CompleteMultipartUpload:{Parts/Part:*{ETag $checksums PartNumber:integer}} !UploadId"
        " $checksums ChecksumType"
        f" MpuObjectSize {_PAYER} IfMatch IfNoneMatch $customer",
        "Expiration ServerSideEncryption VersionId SSEKMSKeyId BucketKeyEnabled RequestCharged",
        "{Location Bucket Key ETag $checksums ChecksumType}",
    ),
    "CopyObject": (
        "PUT key",
        "ACL !Bucket CacheControl ChecksumAlgorithm ContentDisposition ContentEncoding ContentLanguage ContentType !$source Expires $grants"
        f" IfMatch IfNoneMatch !Key Metadata MetadataDirective TaggingDirective AnnotationDirective {_HOW} $sourcecustomer"
        " RequestPayer Tagging"
        f" $locks {_OWNER} ExpectedSourceBucketOwner",
        f"Expiration CopySourceVersionId VersionId {_ENCRYPTED} SSEKMSEncryptionContext BucketKeyEnabled RequestCharged",
        "CopyObjectResult:{ETag LastModified:timestamp ChecksumType $checksums}",
    ),
    "CreateBucket": (
        "PUT bucket",
        "ACL !Bucket CreateBucketConfiguration:{LocationConstraint Location:{Type Name} Bucket:{DataRedundancy Type} Tags:[Tag"
        " {!Key !Value}]}"
        " GrantFullControl GrantRead GrantReadACP GrantWrite GrantWriteACP ObjectLockEnabledForBucket ObjectOwnership BucketNamespace",
        "Location BucketArn",
        "",
    ),
    "CreateMultipartUpload": (
        "POST key?uploads",
        f"ACL !Bucket $contents ContentType Expires $grants !Key Metadata {_HOW} RequestPayer Tagging $locks {_OWNER} ChecksumAlgorithm"
        " ChecksumType",
        f"AbortDate AbortRuleId {_ENCRYPTED} SSEKMSEncryptionContext BucketKeyEnabled RequestCharged ChecksumAlgorithm"
        " ChecksumType VersionId",
        "{Bucket Key UploadId}",
    ),
    "DeleteBucket": ("DELETE bucket", f"!Bucket {_OWNER}", "", ""),
    "DeleteBucketCors": ("DELETE bucket?cors", f"!Bucket {_OWNER}", "", ""),
    "DeleteBucketEncryption": ("DELETE bucket?encryption", f"!Bucket {_OWNER}", "", ""),
    "DeleteBucketLifecycle": ("DELETE bucket?lifecycle", f"!Bucket {_OWNER}", "", ""),
    "DeleteBucketPolicy": ("DELETE bucket?policy", f"!Bucket {_OWNER}", "", ""),
    "DeleteBucketTagging": ("DELETE bucket?tagging", f"!Bucket {_OWNER}", "", ""),
    "DeleteObject": (
        "DELETE key",
        f"!Bucket !Key MFA VersionId RequestPayer BypassGovernanceRetention {_OWNER} IfMatch IfMatchLastModifiedTime IfMatchSize",
        "DeleteMarker VersionId RequestCharged",
        "",
    ),
    "DeleteObjectTagging": ("DELETE key?tagging", f"!Bucket !Key VersionId {_OWNER}", "VersionId", ""),
    "DeleteObjects": (
        "POST bucket?delete",
        "!Bucket !Delete:{!Objects/Object:*{!Key VersionId ETag LastModifiedTime:rfc822 Size:integer} Quiet:boolean} MFA RequestPayer"
        f" BypassGovernanceRetention {_OWNER} ChecksumAlgorithm",
        "RequestCharged",
        "{Deleted:*{Key VersionId DeleteMarker:boolean DeleteMarkerVersionId} Errors/Error:*{Key VersionId Code Message}}",
    ),
    "GetBucketAcl": ("GET bucket?acl", f"!Bucket {_OWNER}", "", "{Owner:$person $grantlist}"),
    "GetBucketCors": ("GET bucket?cors", f"!Bucket {_OWNER}", "", "{$cors}"),
    "GetBucketEncryption": ("GET bucket?encryption", f"!Bucket {_OWNER}", "", "ServerSideEncryptionConfiguration:{$encryption}"),
    "GetBucketLifecycleConfiguration": ("GET bucket?lifecycle", f"!Bucket {_OWNER}", "TransitionDefaultMinimumObjectSize", "{$lifecycle}"),
    "GetBucketLocation": ("GET bucket?location", f"!Bucket {_OWNER}", "", "LocationConstraint"),
    "GetBucketPolicy": ("GET bucket?policy", f"!Bucket {_OWNER}", "", "Policy:text"),
    "GetBucketTagging": ("GET bucket?tagging", f"!Bucket {_OWNER}", "", "{$tags}"),
    "GetBucketVersioning": ("GET bucket?versioning", f"!Bucket {_OWNER}", "", "{Status MFADelete/MfaDelete}"),
    "GetObject": ("GET key", _READ, "$about", "Body:stream"),
    "GetObjectAcl": ("GET key?acl", f"!Bucket !Key VersionId {_PAYER}", "RequestCharged", "{Owner:$person $grantlist}"),
    "GetObjectAttributes": (
        "GET key?attributes",
        "!Bucket !Key VersionId MaxParts@x-amz-max-parts:integer PartNumberMarker@x-amz-part-number-marker:integer $customer"
        f" {_PAYER} !ObjectAttributes@x-amz-object-attributes:list",
        "DeleteMarker LastModified VersionId RequestCharged",
        "{ETag Checksum:{$checksums ChecksumType} ObjectParts:{TotalPartsCount/PartsCount:integer PartNumberMarker:integer"
        " NextPartNumberMarker:integer MaxParts:integer IsTruncated:boolean Parts/Part:*{PartNumber:integer Size:integer $checksums}}"
        " StorageClass ObjectSize:integer}",
    ),
    "GetObjectTagging": ("GET key?tagging", f"!Bucket !Key VersionId {_OWNER} RequestPayer", "VersionId", "{$tags}"),
    "HeadBucket": (
        "HEAD bucket",
        f"!Bucket {_OWNER}",
        "BucketArn BucketLocationType BucketLocationName BucketRegion AccessPointAlias",
        "",
    ),
    "HeadObject": ("HEAD key", _READ, "$about", ""),
    "ListBuckets": (
        "GET service",
        "MaxBuckets ContinuationToken Prefix BucketRegion",
        "",
        "{Buckets:[Bucket {Name CreationDate:timestamp BucketRegion BucketArn}] Owner:$person ContinuationToken Prefix}",
    ),
    "ListMultipartUploads": (
        "GET bucket?uploads",
        f"!Bucket Delimiter EncodingType KeyMarker MaxUploads Prefix UploadIdMarker {_OWNER} RequestPayer",
        "RequestCharged",
        "{Bucket KeyMarker UploadIdMarker NextKeyMarker Prefix Delimiter NextUploadIdMarker MaxUploads:integer IsTruncated:boolean"
        " Uploads/Upload:*{UploadId Key Initiated:timestamp StorageClass Owner:$person Initiator:{ID DisplayName}"
        " ChecksumAlgorithm ChecksumType"
        " VersionId} $prefixes EncodingType}",
    ),
    "ListObjectVersions": (
        "GET bucket?versions",
        f"!Bucket Delimiter EncodingType KeyMarker MaxKeys Prefix VersionIdMarker {_OWNER} RequestPayer"
        " OptionalObjectAttributes@x-amz-optional-object-attributes:list",
        "RequestCharged",
        f"{{IsTruncated:boolean KeyMarker VersionIdMarker NextKeyMarker NextVersionIdMarker Versions/Version:*{{{_LISTED} Key VersionId"
        " IsLatest:boolean} DeleteMarkers/DeleteMarker:*{Owner:$person Key VersionId IsLatest:boolean LastModified:timestamp} Name Prefix"
        " Delimiter MaxKeys:integer $prefixes EncodingType}",
    ),
    "ListObjects": (
        "GET bucket",
        f"!Bucket Delimiter EncodingType Marker MaxKeys Prefix {_PAYER} OptionalObjectAttributes@x-amz-optional-object-attributes:list",
        "RequestCharged",
        f"{{IsTruncated:boolean Marker NextMarker Contents:*{{Key {_LISTED}}} Name Prefix Delimiter MaxKeys:integer $prefixes"
        " EncodingType}}",
    ),
    "ListObjectsV2": (
        "GET bucket?list-type=2",
        f"!Bucket Delimiter EncodingType MaxKeys Prefix ContinuationToken FetchOwner StartAfter {_PAYER}"
        " OptionalObjectAttributes@x-amz-optional-object-attributes:list",
        "RequestCharged",
        f"{{IsTruncated:boolean Contents:*{{Key {_LISTED}}} Name Prefix Delimiter MaxKeys:integer $prefixes EncodingType KeyCount:integer"
        " ContinuationToken NextContinuationToken StartAfter}",
    ),
    "ListParts": (
        "GET key",
        f"!Bucket !Key MaxParts PartNumberMarker !UploadId {_PAYER} $customer",
        "AbortDate AbortRuleId RequestCharged VersionId",
        "{Bucket Key UploadId PartNumberMarker:integer NextPartNumberMarker:integer MaxParts:integer IsTruncated:boolean"
        " Parts/Part:*{PartNumber:integer LastModified:timestamp ETag Size:integer $checksums} Initiator:{ID DisplayName} Owner:$person"
        " StorageClass ChecksumAlgorithm ChecksumType}",
    ),
    "PutBucketAcl": ("PUT bucket?acl", f"{_ACCESS} {_OWNER}", "", ""),
    "PutBucketCors": (
        "PUT bucket?cors",
        f"!Bucket !CORSConfiguration:{{!$cors}} ContentMD5 ChecksumAlgorithm {_OWNER}",
        "",
        "",
    ),
    "PutBucketEncryption": ("PUT bucket?encryption", f"{_CHANGE} !ServerSideEncryptionConfiguration:{{$encryption}} {_OWNER}", "", ""),
    "PutBucketLifecycleConfiguration": (
        "PUT bucket?lifecycle",
        f"!Bucket ChecksumAlgorithm LifecycleConfiguration:{{!$lifecycle}} {_OWNER} TransitionDefaultMinimumObjectSize",
        "TransitionDefaultMinimumObjectSize",
        "",
    ),
    "PutBucketPolicy": ("PUT bucket?policy", f"{_CHANGE} ConfirmRemoveSelfBucketAccess !Policy:text {_OWNER}", "", ""),
    "PutBucketTagging": ("PUT bucket?tagging", f"{_CHANGE} !Tagging:{{!$tags}} {_OWNER}", "", ""),
    "PutBucketVersioning": (
        "PUT bucket?versioning",
        f"{_CHANGE} MFA !VersioningConfiguration:{{MFADelete/MfaDelete Status}} {_OWNER}",
        "",
        "",
    ),
    "PutObject": (
        "PUT key",
        "ACL Body:blob !Bucket $contents ContentLength ContentMD5 ContentType ChecksumAlgorithm $checksums Expires IfMatch"
        " IfNoneMatch $grants"
        f" !Key WriteOffsetBytes Metadata {_HOW} RequestPayer Tagging $locks {_OWNER}",
        "Expiration ETag $checksums ChecksumType ServerSideEncryption VersionId SSECustomerAlgorithm SSECustomerKeyMD5 SSEKMSKeyId"
        " SSEKMSEncryptionContext BucketKeyEnabled Size RequestCharged",
        "",
    ),
    "PutObjectAcl": ("PUT key?acl", f"{_ACCESS} !Key RequestPayer VersionId {_OWNER}", "RequestCharged", ""),
    "PutObjectTagging": (
        "PUT key?tagging",
        f"!Bucket !Key VersionId ContentMD5 ChecksumAlgorithm !Tagging:{{!$tags}} {_OWNER} RequestPayer",
        "VersionId",
        "",
    ),
    "UploadPart": (
        "PUT key",
        f"Body:blob !Bucket ContentLength ContentMD5 ChecksumAlgorithm $checksums !Key !PartNumber !UploadId $customer {_PAYER}",
        f"ETag $checksums {_ENCRYPTED} BucketKeyEnabled RequestCharged VersionId",
        "",
    ),
    "UploadPartCopy": (
        "PUT key",
        f"!Bucket !$source CopySourceRange !Key !PartNumber !UploadId $customer $sourcecustomer {_PAYER} ExpectedSourceBucketOwner",
        f"CopySourceVersionId {_ENCRYPTED} BucketKeyEnabled RequestCharged VersionId",
        "CopyPartResult:{ETag LastModified:timestamp $checksums}",
    ),
}

# What most functions call.
COMMON = ("GetObject", "HeadObject", "PutObject")

# What few do: `_s3_more` has these.
MORE = (
    "DeleteBucketAnalyticsConfiguration DeleteBucketIntelligentTieringConfiguration DeleteBucketInventoryConfiguration"
    " DeleteBucketMetricsConfiguration DeleteBucketOwnershipControls DeleteBucketReplication DeleteBucketWebsite DeletePublicAccessBlock"
    " GetBucketAccelerateConfiguration GetBucketAnalyticsConfiguration GetBucketIntelligentTieringConfiguration"
    " GetBucketInventoryConfiguration GetBucketLifecycle GetBucketLogging GetBucketMetricsConfiguration GetBucketNotification"
    " GetBucketNotificationConfiguration GetBucketOwnershipControls GetBucketPolicyStatus GetBucketReplication GetBucketRequestPayment"
    " GetBucketWebsite GetObjectLegalHold GetObjectLockConfiguration GetObjectRetention GetPublicAccessBlock"
    " ListBucketAnalyticsConfigurations ListBucketIntelligentTieringConfigurations ListBucketInventoryConfigurations"
    " ListBucketMetricsConfigurations PutBucketAccelerateConfiguration PutBucketAnalyticsConfiguration"
    " PutBucketIntelligentTieringConfiguration PutBucketInventoryConfiguration PutBucketLifecycle PutBucketLogging"
    " PutBucketMetricsConfiguration PutBucketNotification PutBucketNotificationConfiguration PutBucketOwnershipControls"
    " PutBucketReplication PutBucketRequestPayment PutBucketWebsite PutObjectLegalHold PutObjectLockConfiguration PutObjectRetention"
    " PutPublicAccessBlock RestoreObject"
).split()

# Whose body S3 wants a checksum of.
CHECKED = (
    "DeleteObjects", "PutBucketAcl", "PutBucketCors", "PutBucketEncryption", "PutBucketLifecycle", "PutBucketLifecycleConfiguration",
    "PutBucketLogging", "PutBucketNotification", "PutBucketOwnershipControls", "PutBucketPolicy", "PutBucketReplication",
    "PutBucketRequestPayment", "PutBucketTagging", "PutBucketVersioning", "PutBucketWebsite", "PutObjectAcl", "PutObjectLegalHold",
    "PutObjectLockConfiguration", "PutObjectRetention", "PutObjectTagging", "PutPublicAccessBlock",
)  # fmt: skip

# Answered with 200 before the work is done: what follows may be an error nevertheless.
LATE = ("CompleteMultipartUpload", "CopyObject", "UploadPartCopy")

# Members that S3 writes percent-encoded when it is asked for that, which it always is: at the top, and in lists.
ENCODED = {
    "ListObjects": ("Delimiter Marker NextMarker", {"Contents": "Key", "CommonPrefixes": "Prefix"}),
    "ListObjectsV2": ("Delimiter Prefix StartAfter", {"Contents": "Key", "CommonPrefixes": "Prefix"}),
    "ListObjectVersions": (
        "KeyMarker NextKeyMarker Prefix Delimiter",
        {"Versions": "Key", "DeleteMarkers": "Key", "CommonPrefixes": "Prefix"},
    ),
}

# By operation: the tokens' names in the input and in the output, the page size's, the lists, and what is the same on each page.
PAGES = {
    "ListBuckets": ("ContinuationToken", "ContinuationToken", "MaxBuckets", "Buckets", "Owner Prefix"),
    "ListMultipartUploads": (
        "KeyMarker UploadIdMarker",
        "NextKeyMarker NextUploadIdMarker",
        "MaxUploads",
        "Uploads CommonPrefixes",
        "RequestCharged Prefix",
    ),
    "ListObjectVersions": (
        "KeyMarker VersionIdMarker",
        "NextKeyMarker NextVersionIdMarker",
        "MaxKeys",
        "Versions DeleteMarkers CommonPrefixes",
        "RequestCharged Prefix",
    ),
    "ListObjects": ("Marker", "NextMarker", "MaxKeys", "Contents CommonPrefixes", "RequestCharged Prefix"),
    "ListObjectsV2": ("ContinuationToken", "NextContinuationToken", "MaxKeys", "Contents CommonPrefixes", "RequestCharged Prefix"),
    "ListParts": (
        "PartNumberMarker",
        "NextPartNumberMarker",
        "MaxParts",
        "Parts",
        "ChecksumAlgorithm Initiator Owner StorageClass ChecksumType",
    ),
}

# By waiter: what is asked, and what each status of the answer means.
WAITERS = {
    "BucketExists": ("HeadBucket", {200: "success", 301: "success", 403: "success", 404: "retry"}),
    "BucketNotExists": ("HeadBucket", {404: "success"}),
    "ObjectExists": ("HeadObject", {200: "success", 404: "retry"}),
    "ObjectNotExists": ("HeadObject", {404: "success"}),
}

# Error codes that are classes of `client.exceptions`.
ERRORS = (
    "AccessDenied AnnotationLimitExceeded AnnotationNameTooLong BucketAlreadyExists BucketAlreadyOwnedByYou EncryptionTypeMismatch"
    " IdempotencyParameterMismatch InvalidAnnotationName InvalidObjectState InvalidPrefix InvalidRequest InvalidWriteOffset"
    " NoSuchAnnotation"
    " NoSuchBucket NoSuchKey NoSuchUpload ObjectAlreadyInActiveTierError ObjectNotInActiveTierError TooManyParts UnsupportedMediaType"
)
